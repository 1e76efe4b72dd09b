#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/arrivals/policies.h"
#include "workload/lengths/policies.h"
#include "workload/limits.h"

namespace spillway::workload {

/// One source of requests: a tenant's application with its own arrivals and lengths.
struct Client {
  std::string name = "client";
  std::string tenant = "default";
  std::string slo_class = "standard";
  double rate_fraction = 1;
  std::optional<double> requests_per_s;
  double start_s = 0;
  std::optional<double> duration_s;
  std::optional<std::int64_t> num_requests;
  Arrivals arrivals = Poisson{};
  Lengths input_tokens = Fixed{512};
  Lengths output_tokens = Fixed{128};
  std::string prefix_group;
  std::int64_t prefix_tokens = 0;

  static constexpr std::string_view type_name = "Client";
  static constexpr std::string_view doc =
      "One source of requests: a tenant's application with its own arrivals and lengths. To change "
      "a tenant's rate in steps, give it one client per step.";
  static void fields(auto field) {
    field("name", &Client::name, "Name of the client; must be unique.");
    field("tenant", &Client::tenant, "Tenant to which its requests belong.");
    field("slo_class", &Client::slo_class, "Class of its requests.");
    field("rate_fraction", &Client::rate_fraction,
          "Its share of the workload's request rate, relative to the other clients that have no "
          "requests_per_s of their own.")
        .dimensionless()
        .range(sim::more_than(0));
    field("requests_per_s", &Client::requests_per_s,
          "Mean arrival rate of this client alone; the workload's rate is then shared by the other "
          "clients. Unset: the client gets its rate_fraction of the workload's rate.")
        .unit("requests/s")
        .range(sim::positive_up_to(1e9))
        .log_search(0.1, 10000);
    field("start_s", &Client::start_s, "Start time; the first gap counts from here.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("duration_s", &Client::duration_s,
          "The client sends no request at or after start_s + duration_s. Unset: it continues until "
          "the workload ends.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("num_requests", &Client::num_requests,
          "Maximum number of requests of this client; unset: unlimited.")
        .unit("requests")
        .range(sim::between(1, 1e9));
    field("arrivals", &Client::arrivals, "When its requests arrive.");
    field("input_tokens", &Client::input_tokens,
          "Length of the unshared part of a prompt; at least 1 token.")
        .unit("tokens");
    field("output_tokens", &Client::output_tokens, "Output length.").unit("tokens");
    field("prefix_group", &Client::prefix_group,
          "Clients of one group share the first prefix_tokens tokens of their prompts; empty: no "
          "shared prefix.");
    field("prefix_tokens", &Client::prefix_tokens,
          "Length of the shared prefix, in addition to input_tokens.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;

  /// Whether its own settings bound the number of requests.
  bool is_finite() const { return duration_s || num_requests; }
  /// Its closed-loop users; null: its arrivals are an open process.
  const ClosedLoop* closed_loop() const { return std::get_if<ClosedLoop>(&arrivals); }
  /// No request of the client arrives at or after this time.
  sim::Time end(sim::Time workload_end) const;
};

}  // namespace spillway::workload
