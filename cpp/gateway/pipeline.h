#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gateway/admission_chain.h"
#include "gateway/bands.h"
#include "gateway/ceilings.h"
#include "gateway/config.h"
#include "gateway/control_loop.h"
#include "gateway/eviction.h"
#include "gateway/limit_set.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::gateway {

/// What went through a gateway: counted as it happens, independently of the requests' outcomes.
struct GatewayCounters {
  std::int64_t attempts = 0;
  std::int64_t admitted = 0;
  std::int64_t rejected = 0;
  std::int64_t expired = 0;    ///< left their queues after a time-out or too long a wait
  std::int64_t evicted = 0;    ///< left their queues to make room
  std::int64_t withdrawn = 0;  ///< left their queues because their clients did not wait
  std::int64_t reclaimed = 0;  ///< dispatched, and ended by an eviction
  std::int64_t dispatched = 0;
  std::int64_t ended = 0;  ///< permits returned

  GatewayCounters& operator+=(const GatewayCounters& other);
  std::int64_t in_flight() const { return dispatched - ended; }
  std::int64_t queued() const { return admitted - expired - evicted - withdrawn - dispatched; }
  std::int64_t shed() const { return rejected + expired + evicted; }
  /// Between the gateway's door and the end, wherever that is.
  std::int64_t present() const { return attempts - admitted - rejected + queued() + in_flight(); }
};

/// Requests that a call has let out of the queues, or that are to be withdrawn. Valid until the
/// next call.
struct Departures {
  std::vector<sim::RequestId> dispatched;  ///< to be routed, in this order
  std::vector<sim::RequestId> dropped;  ///< left a queue undispatched: expired, evicted, withdrawn
  std::vector<sim::RequestId> evicted;  ///< in flight, to be withdrawn from their instances

  void clear() {
    dispatched.clear();
    dropped.clear();
    evicted.clear();
  }
};

/// The answer to a request that asks for admission.
struct Admitted {
  bool admitted;  ///< it has joined its tenant's queue, which is then to be drained
  const Departures& departures;
};

/// The pipeline: admission → tenant queue → fairness and limit → dispatch, and the control of the
/// limit. Keeps the books; policies cannot forget to count. What other stages know of a request it
/// is given, and what is to happen to one it returns.
class Pipeline final {
 public:
  Pipeline(const Gateway& config, std::uint16_t replica, const workload::RequestTable& requests,
           workload::RequestStates& states, std::size_t num_instances, std::uint64_t seed);

  // ---- the way of a request ----------------------------------------------------------------

  /// The request has reached the gateway.
  void arrive() { ++counters_.attempts; }
  /// Decides on admission. `retries`: how often its client has asked before.
  [[nodiscard]] Admitted admit(sim::RequestId id, std::uint64_t retries, const signals::View& view,
                               sim::Time now);
  /// Dispatches while the limits permit, or one request. `view`: null unless its policies need
  /// `fleet_signals`.
  [[nodiscard]] const Departures& drain(const signals::View* view, sim::Time now);
  /// `entered_engine`: when it joined the queue of the instance's engine. True if the queues are to
  /// be drained.
  bool first_token(sim::RequestId id, sim::InstanceId instance, sim::Time entered_engine,
                   sim::Time now);
  /// The request has left the system: its permit returns. `outcome`: as the stage says that ended
  /// it. True if the queues are to be drained.
  bool release(sim::RequestId id, workload::Outcome outcome, sim::Time now);

  /// Its client no longer waits for it. Precondition: it waits in a queue.
  [[nodiscard]] const Departures& withdraw(sim::RequestId id, workload::ReasonCode reason,
                                           sim::Time now);

  // ---- what happens by itself --------------------------------------------------------------

  /// When `expire` is to be called next; kForever: never.
  sim::Time next_timeout() { return bands_.next_timeout(); }
  /// Those whose wait is over leave their queues.
  [[nodiscard]] const Departures& expire(sim::Time now);
  /// Reads the sensor and moves the limit. `view`: as in `drain`.
  void tick(const signals::View* view, sim::Time now);
  /// So many instances are ready, as far as the gateway knows.
  void set_workers(std::int64_t workers) { limits_.set_workers(workers); }

  // ---- what it is like ---------------------------------------------------------------------

  const GatewayCounters& counters() const { return counters_; }
  /// Of the tenant.
  std::int64_t queued(sim::TenantId tenant) const {
    return static_cast<std::int64_t>(bands_.length(tenant));
  }
  /// Likewise, since the start.
  std::int64_t dispatched(sim::TenantId tenant) const {
    return dispatched_by_tenant_[tenant.index()];
  }
  const LimitSet& limits() const { return limits_; }
  std::span<const ControlRecord> control_log() const;
  /// The highest number of requests in flight so far.
  std::int64_t peak_in_flight() const { return peak_in_flight_; }
  /// Whether a request may wait for the one before it rather than for a permit.
  bool heads_block() const { return heads_block_; }
  /// Whether those that wait do so until something happens in the gateway, however much time
  /// passes.
  bool waits_for_event(const signals::View* view, sim::Time now) const;
  /// Set where tokens are charged as they are emitted.
  void set_meter(ServiceMeter& meter) { bands_.set_meter(meter); }

 private:
  void dispatch(sim::RequestId id, sim::Time now);
  // It has left its queue undispatched.
  void drop(sim::RequestId id, workload::Outcome outcome, workload::ReasonCode reason,
            sim::Time now);
  // Takes requests in flight for a band that has been found closed, whether by saturation or not.
  void reclaim(std::size_t band, const signals::View* view, sim::Time now);

  const workload::RequestTable& requests_;
  workload::RequestStates& states_;
  std::uint64_t seed_;
  AdmissionChain chain_;
  Bands bands_;
  LimitSet limits_;
  Ceilings ceilings_;
  Evictor evictor_;
  std::optional<ControlLoop> control_;  // where a limit is under control
  bool one_per_attempt_;
  bool heads_block_;
  GatewayCounters counters_;
  std::int64_t peak_in_flight_ = 0;
  std::vector<std::int64_t> dispatched_by_tenant_;
  Departures departures_;  // of the last call, kept for its memory
};

}  // namespace spillway::gateway
