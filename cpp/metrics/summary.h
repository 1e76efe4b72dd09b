#pragma once

#include <array>
#include <cstddef>
#include <span>
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

/// The figures (`metrics/figures.h`) of all requests that arrived in the window, overall, per class
/// and per tenant. Keys follow `vllm bench serve`; a figure without a population is null.
struct Summary {
  Population all;
  std::vector<Group> classes;
  std::vector<Group> tenants;
  Metrics config;
  RunFigures run;

  sim::Value::Map overall() const;
  /// Of the classes with requests.
  sim::Value::Map by_class() const;
  sim::Value::Map by_tenant() const;
};

/// Populations without common requests: all requests, the classes, or the tenants.
struct Partition {
  std::vector<Population*> populations;
  std::vector<std::size_t> position_of;  ///< of its population, by group of requests
};

/// Collects the requests of a run, each once after its last event, and summarizes them. In
/// streaming mode it keeps histograms, and no data of a request is needed after `add`; otherwise
/// requests come in order of arrival, and exact percentiles are computed from the request states at
/// the end.
class Collector {
 public:
  Collector(const Metrics& config, const workload::RequestTable& requests,
            const workload::RequestStates& states);

  void add(sim::RequestId id);
  Summary summarize(const RunFigures& run) const;

  /// Whether the request was completed within the targets of its class.
  bool is_good(sim::RequestId id) const;

 private:
  using Histograms = std::array<numerics::LogHistogram, kNumLatencies>;

  bool is_good(sim::RequestId id, const workload::SloClass& slo_class) const;

  /// Measures the latencies and gaps. The first partition is that of all requests.
  void measure(std::span<const Partition> partitions) const;
  void measure_histograms(std::span<const Partition> partitions) const;

  const Metrics& config_;
  const workload::RequestTable& requests_;
  const workload::RequestStates& states_;
  Latencies latencies_;
  std::vector<Tally> tallies_;          // per group
  std::vector<Histograms> histograms_;  // per group; empty unless streaming
  std::size_t added_ = 0;
};

}  // namespace spillway::metrics
