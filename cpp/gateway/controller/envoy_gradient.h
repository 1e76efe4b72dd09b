#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

class ControllerPolicy;

/// Compares the latency with one that it measures at low concurrency from time to time.
struct EnvoyGradient {
  std::int64_t request_count = 50;
  double min_concurrency = 3;
  double percentile = 50;
  double buffer = 0.25;
  double interval_s = 60;
  double jitter = 0.15;
  double fixed_min_rtt_s = 0;

  static constexpr std::string_view kind = "envoy_gradient", type_name = "EnvoyGradient";
  static constexpr std::string_view doc =
      "The gradient controller of Envoy's adaptive concurrency filter. From time to time the limit "
      "drops to min_concurrency until request_count requests dispatched since then have given the "
      "least latency. Else, at each tick, limit ← limit × g + √(limit × g), where g = least "
      "latency × (1 + buffer) / latency since the last tick, clamped to [½, 2]. It takes single "
      "samples, so of the sensor only source, scope and tick_s matter (Envoy: e2e, 0.1 s, no "
      "drift), and wants a guard without demand gate and cooldown, and a ceiling of 1000.";
  static void fields(auto field) {
    field("request_count", &EnvoyGradient::request_count,
          "Samples of which the least latency is measured.")
        .unit("requests")
        .range(sim::between(1, 1e6))
        .log_search(5, 200);
    field("min_concurrency", &EnvoyGradient::min_concurrency,
          "Limit while that is measured, and the least at any time.")
        .unit("permits")
        .range(sim::between(1, 1e6))
        .log_search(1, 64);
    field("percentile", &EnvoyGradient::percentile,
          "Percentile of the samples that counts as their latency.")
        .unit("%")
        .range(sim::between(0, 100))
        .search(10, 99);
    field("buffer", &EnvoyGradient::buffer,
          "By which share latency may exceed the least before the limit falls.")
        .dimensionless()
        .range(sim::between(0, 100))
        .search(0, 2);
    field("interval_s", &EnvoyGradient::interval_s,
          "Time from the end of a measurement of the least latency to the next one. It is "
          "also made when the limit has stayed at min_concurrency for five ticks.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(10, 1000);
    field("jitter", &EnvoyGradient::jitter, "Up to which share of the interval is added at random.")
        .dimensionless()
        .range(sim::between(0, 1));
    field("fixed_min_rtt_s", &EnvoyGradient::fixed_min_rtt_s,
          "If positive, the least latency is this and never measured.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s))
        .log_search(0.01, 60);
  }
  bool draws() const { return jitter > 0 && fixed_min_rtt_s == 0; }
};

std::unique_ptr<ControllerPolicy> make(const EnvoyGradient& config, std::uint64_t seed);

}  // namespace spillway::gateway
