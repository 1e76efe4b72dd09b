#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::metrics {

/// How latencies and durations are measured.
enum class Accounting : std::uint8_t { clock, blis };

/// The metric of a term of the fitness score.
enum class FitnessMetric : std::uint8_t {
  throughput,
  tokens_per_sec,
  mean_ttft,
  p50_ttft,
  p99_ttft,
  mean_e2e,
  p50_e2e,
  p99_e2e,
};

/// One term of the fitness score.
struct FitnessTerm {
  FitnessMetric metric = FitnessMetric::throughput;
  double weight = 1;

  static constexpr std::string_view type_name = "FitnessTerm";
  static constexpr std::string_view doc =
      "One term of the fitness score: weight · f, with f = v/(v + 100) for requests/s, v/(v + "
      "10000) for output "
      "tokens/s and 1/(1 + v) for a latency in ms.";
  static void fields(auto field) {
    field("metric", &FitnessTerm::metric, "Metric of the term.");
    field("weight", &FitnessTerm::weight, "Weight of the term.")
        .dimensionless()
        .range(sim::between(-1e9, 1e9));
  }
};

/// What is measured and how.
struct Metrics {
  Accounting accounting = Accounting::clock;
  std::vector<FitnessTerm> fitness{{FitnessMetric::throughput, 0.4},
                                   {FitnessMetric::p99_ttft, 0.3},
                                   {FitnessMetric::mean_e2e, 0.3}};
  bool streaming = false;
  std::int64_t traced_candidates = 0;
  std::optional<double> timeline_step_s;

  /// Whether latencies are those that instances report, instead of clock differences.
  bool uses_reported_latencies() const { return accounting == Accounting::blis; }

  static constexpr std::string_view type_name = "Metrics";
  static constexpr std::string_view doc = "What is measured and how.";
  static void fields(auto field) {
    field("accounting", &Metrics::accounting,
          "clock: latencies are differences of timestamps; blis: sums of step durations, and "
          "priority_inversions, as that simulator reports them.");
    field("fitness", &Metrics::fitness,
          "Terms of the fitness score (BLIS's --fitness-weights); goodput is a better objective.");
    field("streaming", &Metrics::streaming,
          "For very long runs: memory holds only the requests in flight, there are no columns per "
          "request, and percentiles come from a histogram (maximum relative error 0.4%).");
    field("traced_candidates", &Metrics::traced_candidates,
          "Number of best candidates that are logged for every routing decision, with its regret; "
          "0: no log.")
        .unit("instances")
        .range(sim::between(0, 1000));
    field("timeline_step_s", &Metrics::timeline_step_s,
          "Sampling interval of gateway and fleet (result.timeline); unset: no samples.")
        .unit("s")
        .range(sim::between(1e-3, 1e6));
  }
};

}  // namespace spillway::metrics

template <>
struct spillway::sim::EnumNames<spillway::metrics::Accounting> {
  static constexpr std::array<std::string_view, 2> names{"clock", "blis"};
};
template <>
struct spillway::sim::EnumNames<spillway::metrics::FitnessMetric> {
  static constexpr std::array<std::string_view, 8> names{
      "throughput", "tokens_per_sec", "mean_ttft", "p50_ttft",
      "p99_ttft",   "mean_e2e",       "p50_e2e",   "p99_e2e"};
};
