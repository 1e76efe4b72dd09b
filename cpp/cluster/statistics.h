#pragma once

#include <optional>

#include "cluster/config.h"
#include "cluster/request_record.h"
#include "metrics/anomalies.h"
#include "metrics/ledger.h"
#include "metrics/summary.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// The statistics of requests that are collected during a run.
class Statistics {
 public:
  Statistics(const Simulation& simulation, const RequestRecord& record);

  /// Another attempt follows: the timestamps of this one are about to be cleared.
  void retried(sim::RequestId id);
  /// The request has left its instance.
  void released(sim::RequestId id, sim::Time now) {
    if (stays_) stays_->left(id, now);
  }
  /// The request has ended, or the run has.
  void add(sim::RequestId id);
  /// The run has ended: adds the remaining requests, which are all of them unless the run streams.
  void add_rest();

  const metrics::OutcomeCounts& outcomes() const { return outcomes_; }
  const metrics::Collector& collector() const { return collector_; }
  /// Null if inversions are counted without stays: with reported latencies, or in streaming mode.
  metrics::QueueStays* stays() { return stays_ ? &*stays_ : nullptr; }

 private:
  const RequestRecord& record_;
  bool streams_;
  metrics::OutcomeCounts outcomes_;
  metrics::Collector collector_;
  std::optional<metrics::QueueStays> stays_;
};

}  // namespace spillway::cluster
