#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

class ControllerPolicy;

/// Compares the latency with one that it periodically measures at low concurrency.
struct EnvoyGradient {
  std::int64_t request_count = 50;
  double min_concurrency = 3;
  std::optional<double> probe_concurrency;
  double percentile = 50;
  double buffer = 0.25;
  double interval_s = 60;
  double jitter = 0.15;
  double fixed_min_rtt_s = 0;

  static constexpr std::string_view kind = "envoy_gradient", type_name = "EnvoyGradient";
  static constexpr std::string_view doc =
      "The gradient controller of Envoy's adaptive concurrency filter. Periodically the limit "
      "drops to probe_concurrency until request_count requests dispatched since then have given "
      "the "
      "minimum latency. Otherwise, at each tick, limit ← limit × g + √(limit × g), where g = "
      "minimum latency × (1 + buffer) / latency since the last tick, clamped to [½, 2]. It uses "
      "single samples, so only source, scope and tick_s of the sensor apply (Envoy: e2e, 0.1 s, no "
      "drift), and it expects a guard without demand gate and cooldown, and with a ceiling of "
      "1000.";
  static void fields(auto field) {
    field("request_count", &EnvoyGradient::request_count,
          "Number of samples in a measurement of the minimum latency.")
        .unit("requests")
        .range(sim::between(1, 1e6))
        .log_search(5, 200);
    field("min_concurrency", &EnvoyGradient::min_concurrency,
          "Lower bound of the limit at any other time.")
        .unit("permits")
        .range(sim::between(1, 1e6))
        .log_search(1, 64);
    field("probe_concurrency", &EnvoyGradient::probe_concurrency,
          "Limit during that measurement; unset: min_concurrency, as in Envoy, where a high lower "
          "bound makes the minimum latency one under load.")
        .unit("permits")
        .range(sim::between(1, 1e6))
        .log_search(1, 64);
    field("percentile", &EnvoyGradient::percentile,
          "Percentile of the samples that is taken as their latency.")
        .unit("%")
        .range(sim::between(0, 100))
        .search(10, 99);
    field("buffer", &EnvoyGradient::buffer,
          "Relative excess of the latency over the minimum at which the limit starts to fall.")
        .dimensionless()
        .range(sim::between(0, 100))
        .search(0, 2);
    field("interval_s", &EnvoyGradient::interval_s,
          "Time from the end of a measurement of the minimum latency to the next one. A "
          "measurement also starts when the limit has stayed at min_concurrency for five ticks.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(10, 1000);
    field("jitter", &EnvoyGradient::jitter,
          "Maximum share of the interval that is added at random.")
        .dimensionless()
        .range(sim::between(0, 1));
    field("fixed_min_rtt_s", &EnvoyGradient::fixed_min_rtt_s,
          "If positive, the minimum latency, which is then not measured.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s))
        .log_search(0.01, 60);
  }
  bool draws() const { return jitter > 0 && fixed_min_rtt_s == 0; }
};

std::unique_ptr<ControllerPolicy> make(const EnvoyGradient& config, std::uint64_t seed);

}  // namespace spillway::gateway
