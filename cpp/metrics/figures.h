#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/config.h"
#include "numerics/moments.h"
#include "sim/schema/enum.h"
#include "sim/time.h"
#include "sim/value.h"
#include "workload/outcome.h"

namespace spillway::metrics {

/// Latencies of a request. The gaps between its tokens are kept separately.
enum class Latency : std::uint8_t { ttft, tpot, e2e, queue, scheduling_delay };
inline constexpr std::size_t kNumLatencies = 5;
inline constexpr std::array<double, 4> kPercentiles{50, 90, 95, 99};

/// Counts over a population of requests.
struct Tally {
  std::int64_t offered = 0;
  std::array<std::int64_t, workload::kOutcomeNames.size()> outcomes{};
  std::int64_t input_tokens = 0;   ///< of completed requests
  std::int64_t output_tokens = 0;  ///< of completed requests
  std::int64_t entered_input_tokens = 0;
  std::int64_t with_targets = 0;  ///< requests of classes with latency targets
  std::int64_t good = 0;          ///< requests that met all their targets
  sim::Time first_arrival = sim::kForever;
  sim::Time last_completion{0};

  void merge(const Tally& other);
};

/// The values of one latency.
struct Distribution {
  std::int64_t count = 0;
  numerics::Moments moments_ns;
  std::array<double, kPercentiles.size()> percentiles_ns{};
};

/// The population of a block of figures.
struct Population {
  Tally tally;
  std::array<Distribution, kNumLatencies> latencies;
  Distribution gaps;
};

/// The requests of a class or of a tenant.
struct Group {
  std::string name;
  double weight = 1;  ///< of the class or tenant
  Population population;
};

/// The figures of a run that do not derive from single requests.
struct RunFigures {
  sim::Time warm_up;
  sim::Time window_end;      ///< horizon, or the last arrival
  sim::Time fleet_duration;  ///< start of the clock → last event of any instance
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t wasted_tokens = 0;
  std::optional<double> cost;
  std::optional<double> cache_hit_rate;
  std::optional<double> mean_regret;
  std::optional<double> max_regret;
  std::optional<std::int64_t> priority_inversions;
  std::int64_t head_of_line_blocking = 0;
};

/// The inputs to the figures of a population.
struct Measured {
  const Population& population;
  const std::vector<Group>& classes;  ///< of the whole run
  const std::vector<Group>& tenants;
  const Metrics& config;
  const RunFigures& run;
};

enum class Better : std::uint8_t { neither, higher, lower };

/// The description and computation of a figure. Summaries, tables, plots, objectives and
/// comparisons derive from it.
struct FigureInfo {
  std::string name;               ///< its key in a summary
  std::string doc;                ///< its meaning
  std::string_view unit{};        ///< empty: a pure number
  std::string_view population{};  ///< its population
  Better better = Better::neither;
  bool is_count = false;
  bool by_group = true;          ///< whether it exists per class and per tenant, too
  bool needs_targets = false;    ///< whether it requires a latency target
  bool streaming_only = false;   ///< whether it exists in streaming mode only
  bool is_main = false;          ///< whether tables of several runs show it
  bool in_group_tables = false;  ///< whether tables of classes and tenants show it
  std::string label{};           ///< label of an axis
  std::string latency{};         ///< the latency of which it is a statistic, if any
  std::string statistic{};       ///< the statistic: num, mean, std or a percentile such as p99
  std::string blis{};            ///< its key in BLIS's metrics, if it has one
  std::function<sim::Value(const Measured&)> value;
};

/// All figures in the order of a summary. The statistics of one latency derive from one entry.
std::span<const FigureInfo> figures();

}  // namespace spillway::metrics

template <>
struct spillway::sim::EnumNames<spillway::metrics::Better> {
  static constexpr std::array<std::string_view, 3> names{"neither", "higher", "lower"};
};
