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

/// Contract of a scheduler: the order of the engine's waiting queue. Requests are taken by (rank,
/// arrival, name), lowest first; a rank never changes while the request waits.
class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;
  /// Whether the queue is sorted by rank; otherwise new requests join the tail, and preempted ones
  /// the front.
  virtual bool sorts() const { return true; }
  virtual std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const = 0;
  virtual PreemptionRules preemption() const { return {}; }
};

}  // namespace spillway::instance
