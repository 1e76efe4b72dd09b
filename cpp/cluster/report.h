#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cluster/config.h"
#include "cluster/output.h"
#include "gateway/pipeline.h"
#include "instance/instance.h"
#include "metrics/anomalies.h"
#include "metrics/ledger.h"
#include "metrics/summary.h"
#include "signals/busy_monitor.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// What is counted of the requests while a run is under way.
class Statistics {
 public:
  Statistics(const Simulation& simulation, const RequestRecord& record);

  /// Another attempt follows: the stamps of this one are about to be cleared.
  void retried(sim::RequestId id);
  /// It has left its instance.
  void released(sim::RequestId id, sim::Time now) {
    if (stays_) stays_->left(id, now);
  }
  /// Nothing more happens to it, or the run is over.
  void add(sim::RequestId id);

  const metrics::OutcomeCounts& outcomes() const { return outcomes_; }
  const metrics::Collector& collector() const { return collector_; }
  /// Null where inversions are counted without: with `blis` accounting, or in streaming mode.
  metrics::QueueStays* stays() { return stays_ ? &*stays_ : nullptr; }

 private:
  const workload::Journal& journal_;
  metrics::OutcomeCounts outcomes_;
  metrics::Collector collector_;
  std::optional<metrics::QueueStays> stays_;
};

/// How everything stands when a run is over.
struct FinalState {
  const Simulation& simulation;
  const RequestRecord& record;
  Statistics& statistics;  ///< of all requests
  std::vector<const gateway::Pipeline*> gateways;
  std::span<const std::unique_ptr<instance::Instance>> instances;  ///< closed
  std::vector<const signals::BusyWorkers*> busy;  ///< by gateway; empty without load events
  const router::DecisionLog& decisions;
  sim::Time last_change;   ///< of a request or an instance
  sim::Time last_arrival;  ///< of a request that is not a retry
  sim::Time horizon;
};

/// The output but for its record, decisions, timeline and number of events. Throws InvariantError
/// if the books do not balance.
Output report(const FinalState& end);

/// Share of prompt blocks that were found in KV memory. `clock`: of all lookups, none without any;
/// `blis`: the mean over instances of the share of hits in all blocks that requests got.
std::optional<double> cache_hit_rate(std::span<const InstanceReport> instances,
                                     metrics::Accounting accounting);

}  // namespace spillway::cluster
