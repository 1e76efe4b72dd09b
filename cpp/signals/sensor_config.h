#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::signals {

/// The measured quantity.
enum class SensorSource : std::uint8_t {
  ttft,
  engine_ttft,
  e2e,
  e2e_per_token,
  queue_delay,
  kv_utilization,
  hit_rate
};
/// How the window's samples are aggregated.
enum class Aggregation : std::uint8_t { bucketed_quantile, exact_quantile, mean, min, ewma };
/// The requests whose samples count.
enum class SensorScope : std::uint8_t { pooled, tenant, max_over_tenants, slo_class };

}  // namespace spillway::signals

template <>
struct spillway::sim::EnumNames<spillway::signals::SensorSource> {
  static constexpr std::array<std::string_view, 7> names{
      "ttft", "engine_ttft", "e2e", "e2e_per_token", "queue_delay", "kv_utilization", "hit_rate"};
};
template <>
struct spillway::sim::EnumNames<spillway::signals::Aggregation> {
  static constexpr std::array<std::string_view, 5> names{"bucketed_quantile", "exact_quantile",
                                                         "mean", "min", "ewma"};
};
template <>
struct spillway::sim::EnumNames<spillway::signals::SensorScope> {
  static constexpr std::array<std::string_view, 4> names{"pooled", "tenant", "max_over_tenants",
                                                         "slo_class"};
};

namespace spillway::signals {

/// The measurement of a controller: a source, the aggregation of its samples, and the times of
/// reading.
struct Sensor {
  SensorSource source = SensorSource::ttft;
  Aggregation aggregation = Aggregation::bucketed_quantile;
  double quantile = 0.99;
  double ewma_half_life_s = 10;
  double window_s = 30;
  std::int64_t min_samples = 10;
  double tick_s = 5;
  double tick_drift_s = 0.001;
  double tick_phase_s = 0;
  bool includes_refusals = false;
  SensorScope scope = SensorScope::pooled;
  std::string tenant;
  std::string slo_class;

  /// Time between ticks.
  sim::Time interval() const { return sim::from_seconds(tick_s + tick_drift_s); }
  /// False for sources that are read from the instances at ticks; no samples are then recorded.
  bool needs_samples() const {
    return source != SensorSource::kv_utilization && source != SensorSource::hit_rate;
  }
  Needs needs() const {
    return {.first_tokens = source == SensorSource::ttft || source == SensorSource::engine_ttft,
            .fleet_signals = !needs_samples()};
  }

  static constexpr std::string_view type_name = "Sensor";
  static constexpr std::string_view doc =
      "The measurement of a controller: a source, the aggregation of a window's samples, and the "
      "interval of reading. Requests that the gateway sheds contribute no latency samples. The "
      "defaults are those of the gateway of vllm-on-eks @ 0c78403, except for includes_refusals, "
      "which is true there.";
  static void fields(auto field) {
    const auto span = sim::positive_up_to(sim::kLongestSpan_s);
    field("source", &Sensor::source,
          "ttft: from arrival at the gateway to the first token; engine_ttft: from entry to the "
          "engine's queue to the first token; e2e: from arrival to the last token; e2e_per_token: "
          "the same per output token; queue_delay: from arrival to dispatch; kv_utilization and "
          "hit_rate: means over the instances, read at ticks; aggregation, window and scope do not "
          "apply to them.");
    field("aggregation", &Sensor::aggregation,
          "bucketed_quantile: of a Prometheus histogram, interpolated within the bucket; "
          "exact_quantile: NumPy's linear definition; mean; min; ewma: exponentially weighted "
          "by age.");
    field("quantile", &Sensor::quantile, "The quantile, for the two quantile aggregations.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 0.99);
    field("ewma_half_life_s", &Sensor::ewma_half_life_s,
          "Age at which a sample counts half as much as a new one.")
        .unit("s")
        .range(span)
        .log_search(1, 60);
    field("window_s", &Sensor::window_s, "Age up to which samples count.")
        .unit("s")
        .range(span)
        .log_search(1, 120);
    field("min_samples", &Sensor::min_samples,
          "Minimum number of samples in the window; with fewer there is no signal.")
        .unit("samples")
        .range(sim::between(1, 1e9))
        .log_search(1, 100);
    field("tick_s", &Sensor::tick_s, "Time between readings.")
        .unit("s")
        .range(sim::between(0.01, sim::kLongestSpan_s))
        .log_search(0.1, 30);
    field("tick_drift_s", &Sensor::tick_drift_s,
          "Delay of each tick. With any drift, a bucketed window of a multiple of tick_s is one "
          "tick shorter than window_s, and a window of a single tick is never filled.")
        .unit("s")
        .range(sim::between(0, 1));
    field("tick_phase_s", &Sensor::tick_phase_s,
          "Delay of the first tick beyond one interval after the start. A gateway may start at any "
          "time before its traffic, and outcomes can depend on this phase: compare several values.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("includes_refusals", &Sensor::includes_refusals,
          "Whether a dispatched request that its worker refuses contributes a sample, the time "
          "from its arrival to the refusal. Applies to ttft and e2e: queue_delay is sampled at "
          "dispatch in any case, and a refused request neither enters the engine's queue nor has "
          "an output token.");
    field("scope", &Sensor::scope,
          "pooled: the samples of all tenants; tenant: those of one; max_over_tenants: the "
          "largest of the tenants' own aggregates; slo_class: those of one class.");
    field("tenant", &Sensor::tenant, "The tenant whose samples count, with scope tenant.");
    field("slo_class", &Sensor::slo_class, "The class whose samples count, with scope slo_class.");
  }
};

}  // namespace spillway::signals
