#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/clients.h"

namespace spillway::workload {

class ArrivalStream;
struct Requests;

/// Requests generated from distributions.
struct Synthetic {
  /// Whether all requests come from outside the workload.
  bool is_empty() const { return num_requests == 0; }

  double requests_per_s = 10;
  std::optional<std::int64_t> num_requests;
  std::optional<double> duration_s;
  std::vector<Client> clients{Client{}};

  static constexpr std::string_view kind = "synthetic", type_name = "Synthetic";
  static constexpr std::string_view doc =
      "Requests generated from distributions by one or more clients.";
  static void fields(auto field) {
    field("requests_per_s", &Synthetic::requests_per_s,
          "Total mean arrival rate of the clients without requests_per_s; ignored if every client "
          "sets its own.")
        .unit("requests/s")
        .range(sim::positive_up_to(1e9))
        .log_search(0.1, 10000);
    field(
        "num_requests", &Synthetic::num_requests,
        "Stop after this many requests across all clients. Unset: no limit if duration_s is set, "
        "or if every client sets its own duration_s or num_requests; otherwise 1,000. 0: none but "
        "those from outside (`changes`, sessions), whose prompts may have shared segments.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("duration_s", &Synthetic::duration_s,
          "No request arrives at or after this time. Unset: num_requests and the clients' own "
          "limits decide.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("clients", &Synthetic::clients, "The clients.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

/// The open-loop requests of `config` under `seed`, in order of arrival; arrivals are truncated to
/// whole quanta. Every request draws from streams of its own, named by the client's position and
/// the request's ordinal, so changing or appending a client leaves the draws of the others
/// unchanged. (The arrivals of clients without a rate of their own still scale with the rate that
/// is left to them.)
std::unique_ptr<ArrivalStream> stream(const Synthetic& config, std::uint64_t seed,
                                      std::int64_t quantum_ns);

}  // namespace spillway::workload
