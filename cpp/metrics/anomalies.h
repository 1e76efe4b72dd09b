#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::metrics {

/// The stay of one request in the queue of its engine.
struct QueueStay {
  sim::Time entered;
  sim::Time ended;  ///< first scheduled, or left; kForever: still waiting
  std::int64_t priority = 0;
  std::int32_t instance = 0;
  bool is_scheduled = false;
};

/// Number of pairs of requests that are in the queue of one instance at the same time and of which
/// the one of lower priority is scheduled first. O(n log n).
std::int64_t count_priority_inversions(std::span<const QueueStay> stays);

/// The stays of a run's requests in the queues of their engines, one per attempt.
class QueueStays {
 public:
  QueueStays(const workload::RequestTable& requests, const workload::RequestStates& states)
      : requests_(requests), states_(states) {}

  /// The request has left its instance.
  void left(sim::RequestId id, sim::Time now);
  /// Another attempt will overwrite the request's timestamps, or stands for the request from now
  /// on.
  void forget(sim::RequestId id);
  /// Number of inversions among the first `offered` requests, by the priorities of their classes.
  /// To be called at the end of the run.
  std::int64_t count_inversions(std::size_t offered);

 private:
  bool is_scheduled(sim::RequestId id) const { return sim::is_set(states_.scheduled[id.index()]); }
  void add(sim::RequestId id, sim::Time ended);

  const workload::RequestTable& requests_;
  const workload::RequestStates& states_;
  std::vector<QueueStay> stays_;  // stays that the request states no longer show at the end
};

/// A completed request in BLIS's count of inversions.
struct Served {
  std::int32_t instance;
  std::uint16_t slo_class;
  sim::Time arrival;
  double e2e_ns;
};

/// BLIS's count: pairs of requests of one instance and class of which the earlier one took more
/// than twice as long as the later one.
std::int64_t count_priority_inversions(std::span<Served> served);

/// Number of instances whose mean queue is more than twice the mean over all instances; 0 for a
/// single instance.
std::int64_t count_head_of_line_blocking(std::span<const double> mean_waiting);

}  // namespace spillway::metrics
