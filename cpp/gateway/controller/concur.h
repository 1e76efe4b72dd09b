#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class ControllerPolicy;

/// Controls by KV memory instead of latency.
struct Concur {
  double high_kv_utilization = 0.9;
  double hit_rate_fall = 0.05;
  double increase_step = 1;
  double decrease_factor = 0.5;

  static constexpr std::string_view kind = "concur", type_name = "Concur";
  static constexpr std::string_view doc =
      "After CONCUR (Chen et al., arXiv 2601.22705): additive increase while KV memory has room. "
      "At high utilization, a cut by factor if the prefix hit rate has fallen by hit_rate_fall "
      "from its best value since the last cut, otherwise no change. It reads the instances' "
      "signals, so only tick_s of the sensor applies. The paper limits active agents, this "
      "controller the requests in flight; the thresholds are not the paper's.";
  static void fields(auto field) {
    field("high_kv_utilization", &Concur::high_kv_utilization,
          "Mean KV utilization of the instances from which the limit no longer rises.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 1)
        .runtime();
    field("hit_rate_fall", &Concur::hit_rate_fall, "Fall of the hit rate that triggers a cut.")
        .dimensionless()
        .range(sim::between(0, 1))
        .log_search(0.01, 0.3)
        .runtime();
    field("increase_step", &Concur::increase_step, "Increase per tick.")
        .unit("permits")
        .range(sim::positive_up_to(1e6))
        .log_search(1, 16)
        .runtime();
    field("decrease_factor", &Concur::decrease_factor,
          "Share of the limit that remains after a cut, in whole permits.")
        .dimensionless()
        .range(sim::positive_below(1))
        .search(0.3, 0.98)
        .runtime();
  }
  static constexpr signals::Needs needs{.fleet_signals = true};
};

std::unique_ptr<ControllerPolicy> make(const Concur& config, std::uint64_t seed);

}  // namespace spillway::gateway
