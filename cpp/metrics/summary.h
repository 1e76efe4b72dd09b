#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "metrics/config.h"
#include "metrics/latencies.h"
#include "numerics/percentile.h"
#include "sim/value.h"
#include "workload/requests.h"

namespace spillway::metrics {

/// What a summary is made from.
struct Record {
  const workload::RequestTable& requests;
  const workload::Journal& journal;
  std::size_t offered;              ///< requests that arrived before the end of the run
  std::span<const Latencies> rows;  ///< one per offered request
  std::vector<numerics::WeightedSample> token_gaps;  ///< per group of requests
  sim::Time warm_up;
  sim::Time window_end;      ///< horizon, or the last arrival
  sim::Time fleet_duration;  ///< start of the clock → last event of any instance
  std::int64_t preemptions = 0;
  std::int64_t priority_inversions = 0;
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

Summary summarize(const Metrics& config, const Record& record);

}  // namespace spillway::metrics
