#pragma once

#include <cstdint>

#include "cluster/config.h"
#include "signals/needs.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/journal.h"
#include "workload/request_table.h"

namespace spillway::cluster {

/// What the actors of one run share: the offered requests, what becomes of them, the pending events
/// and the clock. Everything else an actor owns.
struct Context {
  const Simulation& simulation;
  std::uint64_t seed;
  signals::Needs needs;  ///< of all policies
  workload::RequestTable& requests;
  workload::Journal& journal;
  sim::EventQueue events;
  sim::Time now{0};
  sim::Time last_change{0};  ///< of a request or an instance

  bool streams() const { return simulation.metrics.streaming; }
  /// Whether an event after `delay` would be the next one anyway: what it would do may be done at
  /// once, which saves its way through the queue.
  bool can_run_inline(sim::Time delay) const {
    return delay == sim::Time{0} && !events.is_due(now);
  }
  sim::TenantId tenant_of(sim::RequestId id) const { return sim::TenantId{requests.tenant(id)}; }
  /// Precondition: it has been routed.
  sim::InstanceId instance_of(sim::RequestId id) const {
    return sim::InstanceId{static_cast<std::size_t>(journal.instance[id.index()])};
  }
};

}  // namespace spillway::cluster
