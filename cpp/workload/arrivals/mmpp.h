#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/range.h"

namespace spillway::workload {

class ArrivalProcess;

/// One state of a modulated process.
struct MmppState {
  double rate_factor = 1;
  double mean_s = 10;

  static constexpr std::string_view type_name = "MmppState";
  static constexpr std::string_view doc = "One state of a Markov-modulated Poisson process.";
  static void fields(auto field) {
    field("rate_factor", &MmppState::rate_factor,
          "Rate of requests in this state, relative to the other states; 0: none arrive.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .search(0, 10);
    field("mean_s", &MmppState::mean_s, "Mean of the exponential time in this state.")
        .unit("s")
        .range(sim::between(1e-3, 1e9))
        .log_search(0.1, 1000);
  }
};

/// Poisson arrivals whose rate follows a cyclic Markov chain.
struct Mmpp {
  std::vector<MmppState> states{{1, 10}, {4, 2}};

  static constexpr std::string_view kind = "mmpp", type_name = "Mmpp";
  static constexpr std::string_view doc =
      "Markov-modulated Poisson process: Poisson arrivals at a rate that changes between states. "
      "The states follow each other in the order of the list, again and again, each for an "
      "exponential time. The client's rate is the mean over all states. A state of rate_factor 0 "
      "makes an on/off source. The first state is drawn from the stationary distribution.";
  static void fields(auto field) { field("states", &Mmpp::states, "The states, at least two."); }
  static constexpr bool draws() { return true; }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

/// Precondition: rate_per_s > 0.
std::unique_ptr<ArrivalProcess> make(const Mmpp& config, double rate_per_s);

}  // namespace spillway::workload
