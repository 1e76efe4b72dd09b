#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gateway/admission_chain.h"
#include "gateway/bands.h"
#include "gateway/ceilings.h"
#include "gateway/config.h"
#include "gateway/control_loop.h"
#include "gateway/eviction.h"
#include "gateway/limit_set.h"
#include "gateway/step_costs.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::gateway {

/// Counts of requests in a gateway, kept independently of the requests' outcomes.
struct GatewayCounters {
  std::int64_t attempts = 0;
  std::int64_t admitted = 0;
  std::int64_t rejected = 0;
  std::int64_t expired = 0;      ///< left their queues after a time-out or too long a wait
  std::int64_t evicted = 0;      ///< left their queues to make room
  std::int64_t withdrawn = 0;    ///< left their queues because their clients withdrew them
  std::int64_t lost = 0;         ///< left their queues because the gateway crashed
  std::int64_t lost_before = 0;  ///< the same of requests that were not admitted yet
  std::int64_t reclaimed = 0;    ///< dispatched, and ended by an eviction
  std::int64_t dispatched = 0;
  std::int64_t ended = 0;  ///< permits returned

  GatewayCounters& operator+=(const GatewayCounters& other);
  std::int64_t in_flight() const { return dispatched - ended; }
  std::int64_t queued() const {
    return admitted - expired - evicted - withdrawn - lost - dispatched;
  }
  std::int64_t shed() const { return rejected + expired + evicted; }
  /// Requests that have arrived at the gateway and not ended.
  std::int64_t present() const { return at_admission() + queued() + in_flight(); }
  std::int64_t at_admission() const { return attempts - admitted - rejected - lost_before; }
};

/// Requests that leave the queues in a call, or that are to be withdrawn from instances. Valid
/// until the next call.
struct Departures {
  std::vector<sim::RequestId> dispatched;  ///< to be routed, in this order
  std::vector<sim::RequestId>
      dropped;  ///< left a queue without dispatch: expired, evicted, withdrawn
  std::vector<sim::RequestId> evicted;  ///< in flight, to be withdrawn from their instances

  void clear() {
    dispatched.clear();
    dropped.clear();
    evicted.clear();
  }
};

/// The result of an admission.
struct Admitted {
  bool admitted;  ///< the request has joined its tenant's queue, which must then be drained
  const Departures& departures;
};

/// The pipeline: admission → tenant queue → fairness and limit → dispatch, and the control of the
/// limit. It keeps the counters, so policies cannot miscount. Facts from other stages come in as
/// arguments; departures are returned.
class Pipeline final {
 public:
  /// `may_change`: whether settings may change during the run. `costs`: of the fleet's servers.
  Pipeline(const Gateway& config, std::uint16_t replica, const workload::RequestTable& requests,
           workload::RequestStates& states, std::size_t num_instances, std::uint64_t seed,
           bool may_change = false, const StepCosts& costs = {});

  // ---- life of a request -------------------------------------------------------------------

  /// A request has reached the gateway.
  void arrive() { ++counters_.attempts; }
  /// Decides on admission. `retries`: the number of earlier attempts.
  [[nodiscard]] Admitted admit(sim::RequestId id, std::uint64_t retries, const signals::View& view,
                               sim::Time now);
  /// Dispatches as many requests as the limits permit, or at most one. `view`: null unless the
  /// policies need `fleet_signals`.
  [[nodiscard]] const Departures& drain(const signals::View* view, sim::Time now);
  /// Whether `pass` may take the place of `admit` and `drain` while no request waits.
  bool never_holds() const { return never_holds_; }
  /// Decides on admission, and dispatches the request if it is admitted: the result of `admit` and
  /// `drain` without the queues. False: rejected. Preconditions: `never_holds`, no request waits,
  /// and a worker is ready.
  [[nodiscard]] bool pass(sim::RequestId id, std::uint64_t retries, const signals::View& view,
                          sim::Time now);
  /// A dispatched request has been sent to an instance. True if the queues must be drained.
  bool routed() {
    --unrouted_;
    return limits_.follow_routing() && counters_.queued() > 0;
  }
  /// A request that was sent to an instance is to be sent to another one.
  void route_again() { ++unrouted_; }
  /// The request's prompt has been computed, and another instance continues it. True if the queues
  /// must be drained.
  bool prompt_computed(sim::RequestId id) {
    limits_.prompt_computed({requests_, id});
    return limits_.frees_at_first_token() && counters_.queued() > 0;
  }
  /// `entered_engine`: when the request joined the queue of the instance's engine. True if the
  /// queues must be drained.
  bool first_token(sim::RequestId id, sim::InstanceId instance, sim::Time entered_engine,
                   sim::Time now);
  /// The request has left the system: its permit is released. `outcome`: set by the stage that
  /// ended it. True if the queues must be drained.
  bool release(sim::RequestId id, workload::Outcome outcome, sim::Time now);

  /// The client withdraws the request. Precondition: it waits in a queue.
  [[nodiscard]] const Departures& withdraw(sim::RequestId id, workload::ReasonCode reason,
                                           sim::Time now);

  /// The gateway has crashed: the request, which waits in a queue or for admission, fails.
  [[nodiscard]] const Departures& lose(sim::RequestId id, sim::Time now);

  // ---- timers ------------------------------------------------------------------------------

  /// Time of the next call of `expire`; kForever: never.
  sim::Time next_timeout();
  /// Requests that have timed out leave their queues.
  [[nodiscard]] const Departures& expire(sim::Time now);
  /// Reads the sensor and moves the limit. `view`: as in `drain`.
  void tick(const signals::View* view, sim::Time now);
  /// Until when ticks are like the last one, unless a request comes or something else happens;
  /// 0: the next one may differ. `is_fleet_steady`: whether the metrics of idle instances, as the
  /// gateway sees them, stay the same.
  sim::Time ticks_settled_until(bool is_fleet_steady) const;
  void repeat_tick(std::int64_t ticks) {
    if (control_) control_->repeat(ticks);
  }
  /// Settings or tenants have changed, in fields marked as `runtime`. `from`: those in force
  /// before.
  void change(const Gateway& from, const Gateway& to, const TenantChange& tenants, sim::Time now);
  /// Sets the number of ready instances, as known to the gateway.
  void set_workers(std::int64_t workers, sim::Time now) {
    limits_.set_workers(workers);
    bands_.set_servers(workers > 0, now);
  }

  // ---- state -------------------------------------------------------------------------------

  const GatewayCounters& counters() const { return counters_; }
  /// Number of queued requests of the tenant.
  std::int64_t queued(sim::TenantId tenant) const {
    return static_cast<std::int64_t>(bands_.length(tenant));
  }
  /// Number of dispatched requests of the tenant since the start.
  std::int64_t dispatched(sim::TenantId tenant) const {
    return dispatched_by_tenant_[tenant.index()];
  }
  const LimitSet& limits() const { return limits_; }
  std::span<const ControlRecord> control_log() const;
  /// The highest number of requests in flight so far.
  std::int64_t peak_in_flight() const { return peak_in_flight_; }
  /// Whether a request may wait for the one before it instead of for a permit.
  bool heads_block() const { return heads_block_; }
  /// Whether the queued requests wait for an event in the gateway: time alone cannot release them.
  bool waits_for_event(const signals::View* view, sim::Time now) const;
  /// Whether a request that every limit let start has waited behind another tenant's, which its own
  /// limit held back.
  bool has_stopped_others() const { return has_stopped_others_; }
  /// To be called if tokens are charged as they are emitted.
  void set_meter(ServiceMeter& meter) { bands_.set_meter(meter); }
  /// From now on details of rejections are kept.
  void keep_details() { keeps_details_ = true; }
  /// What rejections by admission compared, by row of the request, of the policies that say it.
  const std::map<std::uint32_t, std::string>& details() const { return details_; }

 private:
  // Whether the admission chain admits the request; if not, it is rejected.
  bool chain_admits(sim::RequestId id, std::uint64_t retries, const signals::View& view,
                    sim::Time now) {
    return chain_.is_empty() || ask_chain(id, retries, view, now);
  }
  bool ask_chain(sim::RequestId id, std::uint64_t retries, const signals::View& view,
                 sim::Time now);
  // `reason`: as of the chain.
  void reject_by_chain(sim::RequestId id, std::size_t reason, sim::Time now);
  // Drops the requests that have waited too long.
  void drop_expired(sim::Time now);
  // What precedes a drain with the rare settings of `prepares_drains_`. False: nothing may start.
  bool prepare_drain(const signals::View* view, sim::Time now);
  // Whether a cycle ends at the band, which is empty: it is closed.
  bool ends_at_empty(std::size_t band, const signals::View* view, sim::Time now);
  void reject(sim::RequestId id, workload::ReasonCode reason);
  // The gateway answers with this Retry-After; 0: with its own, if it has one.
  void set_retry_after(sim::RequestId id, sim::Time of_policy) {
    if (!states_.keeps_retry_after) return;
    states_.retry_after[id.index()] = of_policy > sim::Time{0} ? of_policy : retry_after_;
  }
  void admitted(sim::RequestId id, sim::Time now);
  // The request takes its permit.
  void dispatch(sim::RequestId id, sim::Time now);
  // The request has left its queue without being dispatched.
  void drop(sim::RequestId id, workload::Outcome outcome, workload::ReasonCode reason,
            sim::Time now);
  // With an expiry period: the first multiple of it at which a request has timed out.
  sim::Time next_sweep();
  // Whether all that waits in the band waits for limits of its own tenants or classes, so that the
  // bands below go on. Only asked if there are such limits.
  bool waits_for_own_limits(const BandQueues& band, const Occasion& occasion) const;
  // Whether a tenant in the band is at its own limit, and a request that all limits would let start
  // waits there or below.
  bool stops_others(std::size_t band, const signals::View* view, sim::Time now) const;
  // Evicts requests in flight for a closed band, if saturation has closed it.
  void reclaim(std::size_t band, const signals::View* view, sim::Time now);

  const workload::RequestTable& requests_;
  workload::RequestStates& states_;
  std::uint64_t seed_;
  AdmissionChain chain_;
  Bands bands_;
  LimitSet limits_;
  Ceilings ceilings_;
  Evictor evictor_;
  std::optional<ControlLoop> control_;  // only if a controller moves a limit
  bool is_cyclic_;
  bool one_per_attempt_;
  bool counts_idle_cycles_;
  sim::Time expiry_period_;
  bool prepares_drains_;
  bool heads_block_;
  bool never_holds_;
  bool may_stop_others_;
  bool has_stopped_others_ = false;
  std::size_t num_instances_;
  StepCosts costs_;
  sim::Time retry_after_;
  GatewayCounters counters_;
  std::int64_t peak_in_flight_ = 0;
  bool keeps_details_ = false;
  std::map<std::uint32_t, std::string> details_;
  std::int64_t unrouted_ = 0;  // dispatched and not yet sent
  std::vector<std::int64_t> dispatched_by_tenant_;
  Departures departures_;  // of the last call; kept to reuse its memory
};

}  // namespace spillway::gateway
