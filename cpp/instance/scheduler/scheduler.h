#pragma once

#include <cstdint>

#include "sim/ids.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// Contract of a scheduler: the order of the engine's waiting queue. Requests are taken by (rank,
/// arrival, name), lowest first; a rank never changes while the request waits.
class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;
  /// Whether the queue is ordered by rank at all; if not it stays as it is: new requests join the
  /// tail, preempted ones the front.
  virtual bool sorts() const { return true; }
  virtual std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const = 0;
};

}  // namespace spillway::instance
