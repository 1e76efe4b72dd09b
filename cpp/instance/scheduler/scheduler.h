#pragma once

#include <cstdint>
#include <optional>

#include "instance/scheduler/victim.h"
#include "sim/ids.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// Which requests a scheduler preempts.
struct PreemptionRules {
  Victim victim = Victim::last;  ///< when memory is short
  /// For a head of the queue that finds no seat or no memory: the least urgent request, if its rank
  /// exceeds the head's by at least this margin ≥ 1; unset: no request.
  std::optional<std::int64_t> margin;
  std::int64_t max_per_step = 0;  ///< of the preemptions for a head
};

/// An order of the waiting requests that is taken anew at every step that considers them: those
/// with the most cached tokens first, of equal ones by (arrival, name).
struct PrefixOrder {
  std::int64_t aging_tokens = 0;  ///< that a request gains with every such step
  std::int64_t max_requests = 0;  ///< with more, the order is that of (arrival, name) alone
};

/// Contract of a scheduler: the order of the engine's waiting queue. Requests are taken by (rank,
/// arrival, name), lowest first; a rank never changes while the request waits. A `prefix_order`
/// takes its place.
class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;
  /// Whether the queue is sorted by rank; otherwise new requests join the tail, and preempted ones
  /// the front.
  virtual bool sorts() const { return true; }
  virtual std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const = 0;
  virtual PreemptionRules preemption() const { return {}; }
  /// Set only if the queue is not sorted by rank.
  virtual std::optional<PrefixOrder> prefix_order() const { return std::nullopt; }
};

}  // namespace spillway::instance
