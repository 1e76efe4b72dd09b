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
  /// The run is over: adds what has not been added, which is all unless the run streams.
  void add_rest();

  const metrics::OutcomeCounts& outcomes() const { return outcomes_; }
  const metrics::Collector& collector() const { return collector_; }
  /// Null where inversions are counted without: with reported latencies, or in streaming mode.
  metrics::QueueStays* stays() { return stays_ ? &*stays_ : nullptr; }

 private:
  const RequestRecord& record_;
  bool streams_;
  metrics::OutcomeCounts outcomes_;
  metrics::Collector collector_;
  std::optional<metrics::QueueStays> stays_;
};

}  // namespace spillway::cluster
