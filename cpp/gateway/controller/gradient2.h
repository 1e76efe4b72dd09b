#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::gateway {

class ControllerPolicy;

/// Compares the latency with its own long-term mean.
struct Gradient2 {
  double rtt_tolerance = 1.5;
  double smallest_gradient = 0.5;
  double queue_size = 4;
  double smoothing = 0.2;
  std::int64_t long_window = 600;
  std::int64_t warm_up = 10;
  double recovery_ratio = 2;
  double recovery_factor = 0.95;

  static constexpr std::string_view kind = "gradient2", type_name = "Gradient2";
  static constexpr std::string_view doc =
      "Gradient2Limit of Netflix concurrency-limits @ 78a74b9: limit ← (1 − smoothing) × limit + "
      "smoothing × (limit × g + queue_size), where g = rtt_tolerance × long-term mean / latency, "
      "clamped to [smallest_gradient, 1]; holds while less than half of the limit is in use. "
      "Netflix's setting: a sensor of e2e, mean, tick_s 1, window_s 1, no drift; a limit from 20, "
      "between 20 and 200; a guard without demand gate.";
  static void fields(auto field) {
    const auto counts = sim::between(1, 1e9);
    field("rtt_tolerance", &Gradient2::rtt_tolerance,
          "Ratio of the latency to its long-term mean at which the limit starts to fall.")
        .dimensionless()
        .range(sim::between(1, 1000))
        .search(1, 3)
        .runtime();
    field("smallest_gradient", &Gradient2::smallest_gradient,
          "Minimum share of the limit that remains after a cut, before smoothing.")
        .dimensionless()
        .range(sim::positive_below(1))
        .search(0.1, 0.9)
        .runtime();
    field("queue_size", &Gradient2::queue_size, "Rise of the limit at gradient 1.")
        .unit("permits")
        .range(sim::between(0, 1e6))
        .log_search(1, 32)
        .runtime();
    field("smoothing", &Gradient2::smoothing, "Share of a move that is applied.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.05, 1)
        .runtime();
    field("long_window", &Gradient2::long_window,
          "Length N of the long-term mean, in which a latency has the weight 2 / (N + 1).")
        .unit("ticks")
        .range(counts)
        .log_search(10, 5000);
    field("warm_up", &Gradient2::warm_up,
          "Number of initial ticks in which the long-term mean is the plain mean.")
        .unit("ticks")
        .range(counts);
    field("recovery_ratio", &Gradient2::recovery_ratio,
          "Ratio of the long-term mean to the latency above which the long-term mean is lowered.")
        .dimensionless()
        .range(sim::between(1, 1000));
    field("recovery_factor", &Gradient2::recovery_factor,
          "Factor by which the long-term mean is then multiplied.")
        .dimensionless()
        .range(sim::positive_up_to(1));
  }
};

std::unique_ptr<ControllerPolicy> make(const Gradient2& config, std::uint64_t seed);

}  // namespace spillway::gateway
