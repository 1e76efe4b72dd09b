#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "metrics/config.h"
#include "metrics/latencies.h"
#include "numerics/log_histogram.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "sim/value.h"
#include "workload/journal.h"
#include "workload/outcome.h"
#include "workload/request_table.h"

namespace spillway::metrics {

/// What the percentiles of a summary are taken of, besides the gaps between tokens.
enum class Figure : std::uint8_t { ttft, tpot, e2e, queue, scheduling_delay };
inline constexpr std::size_t kNumFigures = 5;

/// Counts over a population of requests.
struct Tally {
  std::int64_t offered = 0;
  std::array<std::int64_t, workload::kOutcomeNames.size()> outcomes{};
  std::int64_t input_tokens = 0;   ///< of completed requests
  std::int64_t output_tokens = 0;  ///< likewise
  std::int64_t entered_input_tokens = 0;
  std::int64_t promised = 0;  ///< requests of a class with latency targets
  std::int64_t good = 0;      ///< those that met all of them
  sim::Time first_arrival = sim::kForever;
  sim::Time last_completion{0};

  void merge(const Tally& other);
};

/// What a run knows besides its requests.
struct RunFigures {
  sim::Time warm_up;
  sim::Time window_end;      ///< horizon, or the last arrival
  sim::Time fleet_duration;  ///< start of the clock → last event of any instance
  std::int64_t preemptions = 0;
  std::optional<double> cache_hit_rate;
  std::optional<double> mean_regret;
  std::optional<double> max_regret;
  /// Pairs that wait in the queue of one instance's engine at the same time, and of which the one
  /// of lower class priority is scheduled first (for the first time, if it is preempted later);
  /// blis: see `metrics::Served`.
  std::optional<std::int64_t> priority_inversions;
  std::int64_t head_of_line_blocking = 0;
};

/// Figures over all requests that arrived in the window, per class and per tenant. Keys follow
/// `vllm bench serve`; a figure without a population is null. Preemptions and anomalies are counted
/// over the whole run. `num_*` states the population of the percentiles.
struct Summary {
  sim::Value::Map overall;
  sim::Value::Map by_class;
  sim::Value::Map by_tenant;
};

/// Collects the requests of a run, each once and after its last event, and sums them up. In
/// streaming mode it keeps histograms, and nothing of a request is needed after `add`; else
/// requests come in order of arrival, and it goes back to the journal for exact percentiles.
class Collector {
 public:
  Collector(const Metrics& config, const workload::RequestTable& requests,
            const workload::Journal& journal);

  void add(sim::RequestId id);
  Summary summarize(const RunFigures& run) const;

 private:
  using Histograms = std::array<numerics::LogHistogram, kNumFigures>;

  bool is_good(sim::RequestId id, const workload::SloClass& slo_class) const;

  const Metrics& config_;
  const workload::RequestTable& requests_;
  const workload::Journal& journal_;
  Latencies latencies_;
  std::vector<Tally> tallies_;          // per group
  std::vector<Histograms> histograms_;  // per group; empty unless streaming
  std::size_t added_ = 0;
};

}  // namespace spillway::metrics
