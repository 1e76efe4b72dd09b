#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::gateway {

class ControllerPolicy;

/// Keeps the queue short that it infers from the latency.
struct Vegas {
  double threshold = 1;
  double alpha = 3;
  double beta = 6;
  double smoothing = 1;
  double probe_multiplier = 30;
  bool shed_is_drop = false;

  static constexpr std::string_view kind = "vegas", type_name = "Vegas";
  static constexpr std::string_view doc =
      "VegasLimit of Netflix concurrency-limits @ 78a74b9. With q = ⌈limit × (1 − minimum latency "
      "/ latency)⌉ and g = max(1, ⌊log₁₀ limit⌋): holds while less than half of the limit is in "
      "use; otherwise adds beta × g if q ≤ threshold × g, adds g if q < alpha × g, subtracts g if "
      "q > beta × g. The minimum latency is replaced by the current one every probe_multiplier × "
      "U(½, 1) × limit ticks. Netflix's setting: a sensor of e2e, mean, tick_s 1, window_s 1, no "
      "drift; a limit from 20 up to 1000; a guard without demand gate.";
  static void fields(auto field) {
    const auto multiples = sim::between(0, 1000);
    field("threshold", &Vegas::threshold,
          "Queue up to which the limit rises fast, in multiples of log₁₀ limit.")
        .dimensionless()
        .range(multiples)
        .search(0, 4)
        .runtime();
    field("alpha", &Vegas::alpha, "Queue below which the limit rises, in multiples of log₁₀ limit.")
        .dimensionless()
        .range(multiples)
        .search(1, 12)
        .runtime();
    field("beta", &Vegas::beta,
          "Queue above which the limit falls, and the size of a fast rise, in multiples of log₁₀ "
          "limit.")
        .dimensionless()
        .range(multiples)
        .search(2, 24)
        .runtime();
    field("smoothing", &Vegas::smoothing, "Share of a move that is applied.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.1, 1)
        .runtime();
    field("probe_multiplier", &Vegas::probe_multiplier,
          "Maximum number of ticks between measurements of the minimum latency, in multiples of "
          "the limit.")
        .dimensionless()
        .range(sim::positive_up_to(1e9))
        .log_search(1, 1000);
    field("shed_is_drop", &Vegas::shed_is_drop,
          "Whether a request that the gateway itself rejected, evicted or let expire since the "
          "last tick cuts the limit like a drop by the server. It does not at Netflix; in "
          "sustained overload it drives the limit to the floor.");
  }
  static constexpr bool draws() { return true; }
};

std::unique_ptr<ControllerPolicy> make(const Vegas& config, std::uint64_t seed);

}  // namespace spillway::gateway
