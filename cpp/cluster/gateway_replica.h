#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
/// It decides with the given views and returns departures, which the caller must handle. Departures
/// are valid until the next call. "True: drain" means that the caller must `drain` the queues now.
class GatewayReplica {
 public:
  /// `index`: the subject of its events; `replica`: its place among the replicas. `ranks`: of each
  /// instance. `log`: shared by the replicas. `meter`: null unless policies need `tokens_by_group`.
  GatewayReplica(Context& context, std::size_t index, std::size_t replica,
                 std::span<const std::size_t> ranks, router::DecisionLog& log,
                 gateway::ServiceMeter* meter);

  // ---- life of a request -------------------------------------------------------------------

  void submit() { pipeline_.arrive(); }
  /// Decides on admission. An admitted request is `queued` next. `retries`: number of earlier
  /// attempts.
  [[nodiscard]] gateway::Admitted admit(sim::RequestId id, std::uint64_t retries,
                                        const signals::View& view);
  /// Whether `pass` may take the place of `admit`, `queued` and `drain` while nothing else is due,
  /// so that no request waits for a drain.
  bool never_holds() const { return pipeline_.never_holds(); }
  /// Decides on admission and dispatches an admitted request, which must then be routed. False: it
  /// was rejected. Preconditions: as in Pipeline.
  [[nodiscard]] bool pass(sim::RequestId id, std::uint64_t retries, const signals::View& view);
  /// An admitted request has joined its queue. True: drain.
  [[nodiscard]] bool queued();
  /// A request was not admitted. True: drain.
  [[nodiscard]] bool refused(sim::RequestId id);
  /// The client withdraws the request. Precondition: it is queued.
  [[nodiscard]] const gateway::Departures& withdraw(sim::RequestId id);
  /// The replica has crashed, and the request fails. Precondition: it has not been dispatched.
  [[nodiscard]] const gateway::Departures& lose(sim::RequestId id);
  /// Dispatches requests, and schedules later drains. `view`: null unless policies need
  /// `fleet_signals`. Without workers nothing is dispatched.
  [[nodiscard]] const gateway::Departures& drain(const signals::View* view, bool has_workers);
  /// The request has lost its instance and is to be routed again.
  void route_again(sim::RequestId id, const signals::View& view) {
    pipeline_.route_again();
    dispatcher_.admitted({context_.requests, id}, view);
  }
  /// The routing decision.
  router::Target decide(sim::RequestId id, const signals::View& view) {
    return dispatcher_.decide({context_.requests, id}, view, context_.now);
  }
  /// The same; unset: the router rejects the request.
  std::optional<router::Target> decide_or_reject(sim::RequestId id, const signals::View& view) {
    return dispatcher_.decide_or_reject({context_.requests, id}, view, context_.now);
  }
  /// Whether the router may reject a request.
  bool may_reject() const { return dispatcher_.may_reject(); }
  /// The request is sent to the target of its decision.
  [[gnu::always_inline]] void send(sim::RequestId id, const router::Target& target) {
    dispatcher_.send({context_.requests, id}, target, context_.now);
  }
  /// The router had no instance for the request.
  void unrouted(sim::RequestId id) { dispatcher_.dropped(id); }
  /// The instance that the router of a pool would choose now; kNoInstance: none.
  sim::InstanceId preview(sim::RequestId id, const signals::View& view) {
    return dispatcher_.preview({context_.requests, id}, view, context_.now);
  }
  sim::InstanceId preview_prefill(sim::RequestId id, const signals::View& view) {
    return prefill_->preview({context_.requests, id}, view, context_.now);
  }
  // With pools. Each has its own router: see `decide_or_reject`, `send` and `finished`. A leg
  // counts in flight at its instance for both.
  std::optional<router::Target> decide_prefill(sim::RequestId id, const signals::View& view) {
    const auto target = prefill_->decide_or_reject({context_.requests, id}, view, context_.now);
    if (target) log_.mark_prefill();
    return target;
  }
  void send_prefill(sim::RequestId id, const router::Target& target) {
    prefill_->send({context_.requests, id}, target, context_.now);
    dispatcher_.count_elsewhere(target.instance, 1, prefill_->tokens_of(id));
  }
  void send_decode(sim::RequestId id, const router::Target& target) {
    send(id, target);
    prefill_->count_elsewhere(target.instance, 1, dispatcher_.tokens_of(id));
  }
  void prefill_ended(sim::RequestId id, sim::InstanceId instance, bool is_completed) {
    if (is_completed) prefill_->first_token(id, instance, context_.now);
    dispatcher_.count_elsewhere(instance, -1, -prefill_->tokens_of(id));
    prefill_->finished(id, instance, is_completed, context_.now);
  }
  void decode_ended(sim::RequestId id, sim::InstanceId instance) {
    prefill_->count_elsewhere(instance, -1, -dispatcher_.tokens_of(id));
    finished(id, instance);
  }
  /// The choice of `decide_prefill` is not made use of.
  void take_back_prefill(sim::RequestId id, sim::InstanceId instance) {
    prefill_->take_back(id, instance);
  }
  /// While set, first tokens are those of requests that the prefill pool answers.
  void set_answers_in_prefill(bool is_set) { answering_ = is_set ? prefill_.get() : &dispatcher_; }
  /// Requests have been routed, or have ended.
  void count_routed(std::int64_t requests) { dispatcher_.count_routed(requests); }
  /// Prompts are kept by their instances and no plan says where they go on, or this is over.
  void count_kept(std::int64_t prompts) { kept_prompts_ += prompts; }
  /// The request has been sent. True: drain.
  [[nodiscard, gnu::always_inline]] bool routed() {
    return pipeline_.routed() && drains_.wake(drain_latency_);
  }
  /// Both at once.
  router::Target route(sim::RequestId id, const signals::View& view) {
    const router::Target target = decide(id, view);
    send(id, target);
    return target;
  }
  /// `entered_engine`: when the request joined the queue of the engine. True: drain.
  [[nodiscard]] bool first_token(sim::RequestId id, sim::InstanceId instance,
                                 sim::Time entered_engine);
  /// The prefill pool has computed the prompt of the request, which another instance continues.
  void prompt_computed(sim::RequestId id) {
    if (pipeline_.prompt_computed(id)) drains_.wake_by_event(drain_latency_);
  }
  /// The instance has emitted its first token for a request that has emitted some elsewhere.
  void first_token_again(sim::RequestId id, sim::InstanceId instance) {
    answering_->first_token(id, instance, context_.now);
  }
  /// The request has left its instance.
  void finished(sim::RequestId id, sim::InstanceId instance) {
    const bool is_completed = context_.states.outcome[id.index()] == workload::Outcome::completed;
    dispatcher_.finished(id, instance, is_completed, context_.now);
  }
  /// The request's permit is released. True: drain.
  [[nodiscard]] bool release(sim::RequestId id, workload::Outcome outcome);

  // ---- timers ------------------------------------------------------------------------------

  /// Schedules the first tick of the controller, if there is one. `workers`: number of ready
  /// instances.
  void start(std::int64_t workers);
  /// An event of phase `controller_tick`. `view`: as in `drain`. True: requests are queued, and the
  /// limit may now permit them.
  [[nodiscard]] bool tick(const signals::View* view);
  /// As in Pipeline. Precondition: just ticked.
  sim::Time ticks_settled_until(bool is_fleet_steady) const {
    return pipeline_.ticks_settled_until(is_fleet_steady);
  }
  /// Notes the ticks that are like the last one, except the last of those before `until`. Returns
  /// how long they take.
  sim::Time skip_ticks(sim::Time until);
  /// Schedules the next tick if ticks continue: an interval from now, plus `later`.
  void schedule_tick(bool continues, sim::Time later = {});
  /// An event of phase `queue_expiry`. After handling the departures, the caller must call
  /// `watch_timeouts`.
  [[nodiscard]] const gateway::Departures& expire();
  /// Schedules the earliest time-out of the queued requests.
  void watch_timeouts() {
    if (shortest_timeout_ == sim::kForever) return;
    // No request that has joined its queue since the event was scheduled expires before it.
    if (timeout_due_ > context_.now + shortest_timeout_) find_timeouts();
  }
  /// Requests have left a queue without being dispatched, so later ones may now start. True: drain.
  [[nodiscard]] bool on_queue_departures();
  /// Settings have changed. `from`: those in force before. True: drain.
  [[nodiscard]] bool change(const Simulation& from, const Simulation& to,
                            const gateway::TenantChange& tenants);
  /// The number of ready instances has changed. True: drain.
  [[nodiscard]] bool set_workers(std::int64_t workers);
  /// An event of phase `queue_drain` or `dispatch_attempt`. True: drain.
  [[nodiscard]] bool is_drain_due(sim::Phase phase) {
    return drains_.is_due(phase, pipeline_.counters().queued()) && !has_crashed_;
  }
  DrainSchedule& drains() { return drains_; }

  // ---- state -------------------------------------------------------------------------------

  std::size_t index() const { return index_; }
  std::size_t replica() const { return replica_; }
  /// The process has ended: what happens to its requests still is counted here, and nothing else.
  void crash() { has_crashed_ = true; }
  bool has_crashed() const { return has_crashed_; }
  const gateway::Pipeline& pipeline() const { return pipeline_; }
  /// The local state of this replica.
  const signals::LocalState& local_state() const { return dispatcher_.local_state(); }
  const signals::LocalState& local_state_of_prefill() const { return prefill_->local_state(); }
  /// Requests routed to the instance and not finished there.
  std::int32_t in_flight(sim::InstanceId instance) const {
    return dispatcher_.local_state().in_flight[instance.index()];
  }
  /// From now on the replica sees the busy workers; null: it does not.
  void set_busy_workers(const signals::BusyWorkers* busy) {
    dispatcher_.set_busy_workers(busy);
    if (prefill_) prefill_->set_busy_workers(busy);
  }
  /// Whether requests here have pending events, apart from the effects of ticks.
  bool has_pending_work(bool awaits_workers);

 private:
  // Calls `decide` with the view of an admission decision.
  auto with_view(const signals::RequestView& request, const signals::View& fleet,
                 const auto& decide) {
    if (!context_.needs.next_choice) return decide(fleet);
    return decide(fleet.knowing(dispatcher_.preview(request, fleet, context_.now)));
  }
  void drop(const gateway::Departures& departures);
  // Schedules the earliest time-out. One event is pending at a time.
  void find_timeouts();

  Context& context_;
  std::size_t index_;
  std::int64_t kept_prompts_ = 0;
  std::size_t replica_;
  sim::Time drain_latency_;
  bool is_controlled_;
  sim::Time shortest_timeout_;
  gateway::Pipeline pipeline_;
  router::Dispatcher dispatcher_;
  DrainSchedule drains_;
  router::DecisionLog& log_;
  bool has_crashed_ = false;
  bool has_tick_ = false;  // a tick is due
  sim::Time timeout_due_ = sim::kForever;
  std::unique_ptr<router::Dispatcher> prefill_;  // of the prefill pool; null without pools
  router::Dispatcher* answering_ = &dispatcher_;
};

}  // namespace spillway::cluster
