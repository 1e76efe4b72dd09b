#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "metrics/config.h"
#include "metrics/figures.h"
#include "metrics/latencies.h"
#include "numerics/log_histogram.h"
#include "sim/ids.h"
#include "sim/value.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::metrics {

/// The figures (`metrics/figures.h`) of all requests that arrived in the window, per class and per
/// tenant. Keys follow `vllm bench serve`; a figure without a population is null.
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
            const workload::RequestStates& states);

  void add(sim::RequestId id);
  Summary summarize(const RunFigures& run) const;

 private:
  using Histograms = std::array<numerics::LogHistogram, kNumLatencies>;

  bool is_good(sim::RequestId id, const workload::SloClass& slo_class) const;

  const Metrics& config_;
  const workload::RequestTable& requests_;
  const workload::RequestStates& states_;
  Latencies latencies_;
  std::vector<Tally> tallies_;          // per group
  std::vector<Histograms> histograms_;  // per group; empty unless streaming
  std::size_t added_ = 0;
};

}  // namespace spillway::metrics
