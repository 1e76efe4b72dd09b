#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cluster/context.h"
#include "cluster/drain_schedule.h"
#include "gateway/pipeline.h"
#include "router/router.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::cluster {

/// One replica of the gateway: its pipeline, its router, and its timers, which are events of the
/// context.
///
/// It decides with the views that it is given and returns what leaves it; what becomes of that is
/// the caller's. Departures are valid until the next call. "True: drain" asks the caller to `drain`
/// the queues now.
class GatewayReplica {
 public:
  /// `ranks`: of each instance. `log`: shared by the replicas. `meter`: null unless policies need
  /// `tokens_by_group`.
  GatewayReplica(Context& context, std::size_t index, std::span<const std::size_t> ranks,
                 router::DecisionLog& log, gateway::ServiceMeter* meter);

  // ---- the way of a request ----------------------------------------------------------------

  void submit() { pipeline_.arrive(); }
  /// Decides on admission. What was admitted is `queued` next. `retries`: how often its client has
  /// asked before.
  [[nodiscard]] gateway::Admitted admit(sim::RequestId id, std::uint64_t retries,
                                        const signals::View& view);
  /// An admitted request has joined its queue. True: drain.
  [[nodiscard]] bool queued();
  /// Its client no longer waits for it. Precondition: it is queued.
  [[nodiscard]] const gateway::Departures& withdraw(sim::RequestId id);
  /// Dispatches what may be, and schedules what follows. `view`: null unless policies need
  /// `fleet_signals`. Without workers nothing is dispatched.
  [[nodiscard]] const gateway::Departures& drain(const signals::View* view, bool has_workers);
  router::Target route(sim::RequestId id, const signals::View& view) {
    return dispatcher_.route({context_.requests, id}, view, context_.now);
  }
  /// `entered_engine`: when it joined the queue of the engine. True: drain.
  [[nodiscard]] bool first_token(sim::RequestId id, sim::InstanceId instance,
                                 sim::Time entered_engine);
  /// It has left its instance.
  void finished(sim::RequestId id, sim::InstanceId instance) {
    dispatcher_.finished(id, instance, context_.now);
  }
  /// Its permit returns. True: drain.
  [[nodiscard]] bool release(sim::RequestId id, workload::Outcome outcome);

  // ---- timers ------------------------------------------------------------------------------

  /// The first tick of the controller is scheduled, where there is one. `workers`: ready instances.
  void start(std::int64_t workers);
  /// An event of phase `controller_tick`. `view`: as in `drain`. True: requests are queued, which
  /// the limit may let go now.
  [[nodiscard]] bool tick(const signals::View* view);
  /// The next tick, if they continue: an interval from now, and so much later.
  void schedule_tick(bool continues, sim::Time later = {});
  /// An event of phase `queue_expiry`. Once what left has been dealt with, `watch_timeouts` is due.
  [[nodiscard]] const gateway::Departures& expire();
  /// A time-out is scheduled for the queued request with the earliest.
  void watch_timeouts();
  /// After requests have left a queue undispatched: whether the ones behind them may go now. True:
  /// drain.
  [[nodiscard]] bool on_queue_departures();
  /// The number of ready instances has changed. True: drain.
  [[nodiscard]] bool set_workers(std::int64_t workers);
  /// An event of phase `queue_drain` or `dispatch_attempt`. True: drain.
  [[nodiscard]] bool is_drain_due(sim::Phase phase) {
    return drains_.is_due(phase, pipeline_.counters().queued());
  }
  DrainSchedule& drains() { return drains_; }

  // ---- state -------------------------------------------------------------------------------

  std::size_t index() const { return index_; }
  const gateway::Pipeline& pipeline() const { return pipeline_; }
  /// What this replica knows by itself.
  signals::LocalState local_state() const { return dispatcher_.local_state(); }
  /// Whether anything is still to happen to a request here, apart from what ticks may change.
  bool has_pending_work(bool awaits_workers);

 private:
  void drop(const gateway::Departures& departures);

  Context& context_;
  std::size_t index_;
  sim::Time drain_latency_;
  bool is_controlled_;
  bool has_timeouts_;
  gateway::Pipeline pipeline_;
  router::Dispatcher dispatcher_;
  DrainSchedule drains_;
  bool has_tick_ = false;  // one is due
  sim::Time timeout_due_ = sim::kForever;
};

}  // namespace spillway::cluster
