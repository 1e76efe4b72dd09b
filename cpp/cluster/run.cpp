#include "cluster/run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/clients.h"
#include "cluster/context.h"
#include "cluster/fitted_states.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/held_run.h"
#include "cluster/idle_spans.h"
#include "cluster/interruption.h"
#include "cluster/livelock.h"
#include "cluster/load_events.h"
#include "cluster/nesting.h"
#include "cluster/observation.h"
#include "cluster/pools.h"
#include "cluster/report.h"
#include "cluster/sampler.h"
#include "cluster/setting_changes.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

using sim::Event;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

/// One run: owns the actors, takes the earliest event and passes it to the actor of its phase.
/// Results of an actor are passed on here, so no actor knows another one.
class Run final : public HeldRun, workload::RequestListener {
 public:
  /// `later`: the versions of the simulation.
  Run(const Simulation& simulation, std::uint64_t seed, RunOptions options,
      std::vector<Version> later)
      : options_(std::move(options)),
        context_(simulation, seed, options_.requests, options_.interrupted, options_.is_observed,
                 later),
        clients_(context_),
        pools_(has_pools(simulation) ? std::make_unique<Pools>(context_, own_listener()) : nullptr),
        fleet_(context_, listener(), options_.reference, options_.step_logs, pools_.get()),
        load_events_(context_, fleet_.instances(), fleet_.scrapes()),
        sampler_(context_),
        fitted_states_(context_),
        gateways_(context_, fleet_.ranks(), context_.needs.tokens_by_group ? &fleet_ : nullptr),
        setting_changes_(context_, std::move(later)),
        idle_spans_(context_, options_.reference),
        interruption_(options_.interrupted),
        livelock_(static_cast<std::uint64_t>(clients_.max_attempts())),
        has_models_(cluster::has_models(simulation)),
        passes_(!options_.reference && simulation.fleet.is_constant() && !has_models_ &&
                gateways_.replicas().front()->never_holds()),
        horizon_(sim::from_seconds(simulation.horizon_s.value_or(sim::kLongestSpan_s))),
        admission_latency_(sim::from_seconds(simulation.gateway.admission_latency_s)),
        routing_latency_(sim::from_seconds(simulation.gateway.routing_latency_s)),
        decision_latency_(sim::from_seconds(simulation.gateway.decision_latency_s)) {
    for (const auto& gateway : gateways_.replicas()) {
      gateway->set_busy_workers(load_events_.known_to(gateway->index()));
      is_decision_special_ = is_decision_special_ || gateway->may_reject();
    }
    clients_.set_open(options_.is_open);
    is_decision_special_ = is_decision_special_ || has_models_;
    if (pools_) {
      pools_->connect(fleet_, gateways_, load_events_);
      is_decision_special_ = true;
    }
    for (const Change& change : simulation.changes) {
      const Time at = sim::from_seconds(change.at_s);
      for (const workload::Submission& submission : change.submit) add(submission, at);
      for (const std::int64_t number : change.cancel) cancel(static_cast<std::size_t>(number), at);
    }
  }

  /// Schedules what happens by itself.
  void start() {
    clients_.start();
    for (const auto& gateway : gateways_.replicas()) gateway->start(fleet_.num_ready());
    change_settings();
    if (!context_.simulation.fleet.is_constant()) resize_fleet();
    sampler_.start();
    fitted_states_.start();
    load_events_.start();
    setting_changes_.start();
  }

  bool set(const sim::Value::Map& values, Time at) override {
    // Ticks, scrapes and samples have ended if the queued requests had no instance to wait for.
    const bool has_given_up = gateways_.counters().queued() > 0 && !has_pending_work();
    return setting_changes_.add(values, at, has_given_up);
  }

  std::optional<std::size_t> submit(const workload::Submission& request, Time at) override {
    const bool shares = request.segments.empty() || context_.requests.shares_segments();
    if (has_wound_down_ || may_retry_beside(context_.simulation) || !shares || !knows(request))
      return std::nullopt;
    return add(request, at);
  }
  bool knows(const workload::Submission& request) const override {
    return clients_.submissions().are_known(request);
  }
  // Settings of the same instant change first.
  void cancel(std::size_t number, Time at) override {
    const auto subject = static_cast<std::uint32_t>(number);
    context_.events.push({at, Phase::settings_change, subject + 1, subject});
  }
  std::vector<SubmissionEvent> take_events(Time now, bool forgets) override {
    return clients_.take_events(now, forgets);
  }
  void note_emitted(Time now) override { fleet_.note_emitted(now); }
  Time next_due(Time now) override {
    if (is_idle()) return sim::kForever;
    return std::min(context_.events.next_due_of_all(), fleet_.next_token(now));
  }
  void close() override { clients_.set_open(false); }
  const Submissions& submissions() const override { return clients_.submissions(); }

  void advance(Time until) override {
    pause_after_ = kNever;  // an interruption may have left another value
    handle_events(until, false);
  }
  Time advance_while_busy(Time until, std::uint64_t max_events) override {
    const std::uint64_t handled = context_.events.popped();
    pause_after_ = max_events > kNever - handled ? kNever : handled + max_events;
    handle_events(until, true);
    return std::exchange(pause_after_, kNever) == kPaused ? context_.now : until_;
  }
  Time advance_by(std::int64_t requests) override {
    pause_after_ = kNever;
    const std::size_t enough = context_.record->offered + static_cast<std::size_t>(requests);
    handle_events(horizon_, true, enough);
    const bool is_at_horizon = context_.record->offered < enough && !is_idle() &&
                               context_.events.next_due() != sim::kForever;
    const Time reached = is_at_horizon ? horizon_ : context_.now;
    handle_events(reached, true);
    return reached;
  }

  Time horizon() const override { return horizon_; }
  Time now() const override { return context_.now; }

  std::vector<std::string> tenants() const override {
    std::vector<std::string> names;
    names.reserve(context_.requests.tenants.size());
    for (const workload::Tenant& tenant : context_.requests.tenants) names.push_back(tenant.name);
    return names;
  }

  bool has_pending_work() const override {
    const bool awaits_instances = fleet_.awaits_instances() ||
                                  (fleet_.num_ready() == 0 && setting_changes_.will_set_target());
    return clients_.has_pending() || gateways_.has_pending_work(awaits_instances);
  }

  Observation observe(Time now, bool is_true) override {
    context_.now = now;
    return is_true ? true_state(context_, fleet_, gateways_, sampler_)
                   : seen_state(context_, fleet_, gateways_, sampler_);
  }

  Output finish() override {
    fleet_.close(horizon_);
    if (fleet_.notices_late()) clients_.settle();
    if (pools_ && context_.events.next_due_of_all() == sim::kForever) pools_->check_progress();
    context_.statistics.add_rest();
    if (auto& legs = context_.record->legs) legs->resize(context_.requests.capacity());
    Output output =
        report({context_, clients_, gateways_, fleet_, load_events_, pools_.get(), horizon_});
    output.decisions = std::move(gateways_.decisions());
    for (const auto& gateway : gateways_.replicas()) {
      output.refusal_details.insert(gateway->pipeline().details().begin(),
                                    gateway->pipeline().details().end());
    }
    output.timeline = sampler_.take_timeline();
    output.fitted_states = fitted_states_.report();
    if (options_.keep_requests && !context_.streams()) output.record = context_.record;
    return output;
  }

 private:
  // Handles the events up to `until`; with `while_busy` only while there are requests, or requests
  // to come, and fewer than `enough` have arrived. The only loop over events, so that handling them
  // is compiled into it once.
  void handle_events(Time until, bool while_busy,
                     std::size_t enough = std::numeric_limits<std::size_t>::max()) {
    until_ = std::min(until, horizon_);
    Event event;
    while (!while_busy || (!is_idle() && context_.record->offered < enough)) {
      if (!context_.events.pop(until_, event)) return;
      handle(event);
#ifdef SPILLWAY_CHECK_EVERY_EVENT
      for (const auto& instance : fleet_.instances()) instance->check_memory();
#endif
      if (context_.events.popped() % Interruption::kEventsBetweenCalls == 0) check_progress();
    }
  }

  workload::RequestListener& own_listener() { return *this; }
  workload::RequestListener& listener() {
    if (pools_) return *pools_;
    return *this;
  }

  // Whether no request is in the system.
  bool is_empty() const { return gateways_.counters().present() == 0; }

  // Whether all requests have ended. What happens next by itself depends on whether more will come.
  bool is_idle() const { return !has_pending_work() && is_empty(); }

  // Whether what is done periodically is done once more.
  bool continues() {
    const bool is_busy = has_pending_work();
    has_wound_down_ = has_wound_down_ || !is_busy;
    if (pools_ && is_busy && !clients_.has_pending()) pools_->check_progress();
    return is_busy;
  }

  [[gnu::always_inline]] void handle(const Event& event) {
    const RequestId request{event.subject()};
    context_.begin(event);
    switch (event.phase()) {
      case Phase::source_arrival:
      case Phase::user_arrival:
      case Phase::outside_arrival:
        return submit(clients_.arrive(event));
      case Phase::retry_arrival:
        if (clients_.gives_up(event)) return leave(request);
        return submit(clients_.arrive(event));
      case Phase::client_reaction:
        if (const auto waiting = clients_.timer_of(event)) withdraw_if_late(*waiting);
        return;
      case Phase::admission:
        return admit(request);
      case Phase::queue_drain:
      case Phase::dispatch_attempt: {
        GatewayReplica& gateway = gateways_.at(event.subject());
        if (gateway.is_drain_due(event.phase())) drain_last(gateway);
        return;
      }
      case Phase::queue_expiry:
        return expire(gateways_.at(event.subject()));
      case Phase::controller_tick:
        return tick(gateways_.at(event.subject()));
      case Phase::routing:
        return dispatch(request);
      case Phase::ingress:
        if (const auto entered = fleet_.enter(event)) withdraw_if_late(*entered);
        return;
      case Phase::leg_entry:
        return pools_->enter(event);
      case Phase::transfer_end:
        return pools_->end_transfers(event);
      case Phase::instance_expiry:
        return fleet_.at(InstanceId{event.subject()}).expire(context_.now);
      case Phase::step_start:
        return fleet_.start_step(event.subject());
      case Phase::step_end:
        return fleet_.end_step(event.subject());
      case Phase::first_token:
        return first_token(request);
      case Phase::permit_release:
        return released(request);
      case Phase::settings_change:
        if (event.tie() == 0) return change_settings();
        if (const auto withdrawn = clients_.withdraw(event.subject())) withdraw(*withdrawn);
        return;
      case Phase::fleet_change:
        return resize_fleet();
      case Phase::telemetry:
        if (const auto scraped = load_events_.handle(event); scraped && continues()) {
          if (is_empty()) skip_scrapes(*scraped);
          load_events_.schedule_scrape(*scraped);
        }
        return;
      case Phase::timeline_sample:
        if (event.tie() == FittedStates::kKey) {
          return fitted_states_.sample(fleet_.instances(), continues());
        }
        return sample();
    }
  }

  std::size_t add(const workload::Submission& request, Time at) {
    is_decision_special_ = is_decision_special_ || request.instance.has_value();
    return clients_.submit(request, at);
  }

  // ---- life of a request -------------------------------------------------------------------

  [[gnu::always_inline]] void submit(RequestId request) {
    gateways_.of(request).submit();
    sampler_.submitted(request);
    clients_.submitted(request);
    if (context_.can_run_inline(admission_latency_)) {
      return passes_ ? pass(request) : admit(request);
    }
    context_.events.push({context_.now + admission_latency_, Phase::admission, 0, request.value});
  }

  // The way of a request through a gateway that never holds one, if nothing else is due: then no
  // request waits there, and no timer of its client has expired.
  [[gnu::always_inline]] void pass(RequestId request) {
    GatewayReplica& gateway = gateways_.of(request);
    const signals::View view = view_for(gateway);
    if (gateway.pass(request, clients_.retries_of(request), view)) {
      return route(gateway, request, view);
    }
    sampler_.shed(request);
    leave(request);
  }

  void admit(RequestId request) {
    GatewayReplica& gateway = gateways_.of(request);
    const signals::View view = view_for(gateway);
    const auto ask = [&](const signals::View& seen) {
      return gateway.admit(request, clients_.retries_of(request), seen);
    };
    const auto [is_admitted, departures] =
        has_models_ ? ask(view_of_model(request, view)) : ask(view);
    drop(departures);
    if (!is_admitted) {
      const bool drains = gateway.refused(request);
      sampler_.shed(request);
      leave(request);
      if (drains) drain_last(gateway, &view);
      return;
    }
    withdraw_if_late(request);
    if (gateway.queued()) drain_last(gateway, &view);
  }

  void drain(GatewayReplica& gateway) { pass_on(dispatch_from(gateway)); }

  // `drain` as the last effect of an event: a request that is dispatched alone is routed
  // immediately if nothing else is due. `view`: of the gateway at this instant, if there is one.
  void drain_last(GatewayReplica& gateway, const signals::View* view = nullptr) {
    const gateway::Departures& departures = dispatch_from(gateway);
    const bool is_alone = departures.dispatched.size() == 1 && departures.dropped.empty() &&
                          departures.evicted.empty();
    if (!is_alone || options_.reference || !context_.can_run_inline(routing_latency_)) {
      return pass_on(departures);
    }
    context_.drains_over = context_.now;
    const RequestId request = departures.dispatched.front();
    route(gateway, request, view ? *view : view_for(gateway));
  }

  [[gnu::always_inline]] const gateway::Departures& dispatch_from(GatewayReplica& gateway) {
    const bool has_workers = fleet_.num_ready() > 0;
    const auto view = has_workers ? fleet_signals_for(gateway) : std::nullopt;
    return gateway.drain(view ? &*view : nullptr, has_workers);
  }

  [[gnu::always_inline]] void pass_on(const gateway::Departures& departures) {
    for (const RequestId request : departures.dispatched) {
      context_.events.push({context_.now + routing_latency_, Phase::routing, 0, request.value});
    }
    drop(departures);
    for (const RequestId victim : departures.evicted) evict(victim);
  }

  void evict(RequestId victim) {
    const bool is_in_transit = context_.states.outcome[victim.index()] == Outcome::in_transit;
    if (pools_ && is_in_transit) return pools_->withdraw(victim, Outcome::evicted);
    fleet_.evict(victim);
  }

  void dispatch(RequestId request) {
    GatewayReplica& gateway = gateways_.of(request);
    if (const auto target = take_decided(request)) return send(gateway, request, *target);
    route(gateway, request, view_for(gateway));
  }

  // Until the decision has been taken, the request has a second event of phase `routing`.
  void send_later(RequestId request, const router::Target& target) {
    if (decided_.size() <= request.index()) decided_.resize(2 * request.index() + 1);
    decided_[request.index()] = target;
    context_.events.push({context_.now + decision_latency_, Phase::routing, 0, request.value});
  }
  std::optional<router::Target> take_decided(RequestId request) {
    if (decision_latency_ == Time{0} || request.index() >= decided_.size()) return std::nullopt;
    return std::exchange(decided_[request.index()], std::nullopt);
  }

  [[gnu::always_inline]] void route(GatewayReplica& gateway, RequestId request,
                                    const signals::View& view) {
    if (is_decision_special_) return route_specially(gateway, request, view);
    send(gateway, request, gateway.decide(request, view));
  }

  // A decision that takes time, may be that there is no instance, has one choice, or is about two
  // pools.
  [[gnu::noinline]] void route_specially(GatewayReplica& gateway, RequestId request,
                                         const signals::View& view) {
    if (pools_) {
      if (pools_->is_in_handoff(request)) return pools_->route_decode(request);
      if (const auto why = pools_->route(request)) return reject_unrouted(gateway, request, *why);
      if (gateway.routed()) drain(gateway);
      return;
    }
    const auto only = clients_.submissions().instance_of(request);
    const std::optional<router::Target> target =
        only ? decide_at(InstanceId{static_cast<std::size_t>(*only)}, gateway, request, view)
        : is_served(request) ? gateway.decide_or_reject(request, view_of_model(request, view))
                             : std::nullopt;
    if (!target) return reject_unrouted(gateway, request);
    if (decision_latency_ > Time{0}) return send_later(request, *target);
    send(gateway, request, *target);
  }

  // Whether a ready instance, or this one, serves the model that the request names.
  bool is_served(RequestId request) const {
    return !has_models_ || !fleet_.ready_for(context_.tenant_of(request)).empty();
  }
  bool is_served(RequestId request, InstanceId instance) const {
    if (!has_models_) return true;
    const auto ready = fleet_.ready_for(context_.tenant_of(request));
    return std::ranges::find(ready, instance) != ready.end();
  }
  // What is seen of the instances that may serve the request; of all if none is ready.
  signals::View view_of_model(RequestId request, const signals::View& view) const {
    if (!has_models_ || !is_served(request)) return view;
    return view.of(fleet_.ready_for(context_.tenant_of(request)));
  }

  // Unset: the instance is not ready or serves another model, or the router rejects the request.
  std::optional<router::Target> decide_at(InstanceId instance, GatewayReplica& gateway,
                                          RequestId request, const signals::View& view) {
    if (!fleet_.is_ready(instance) || !is_served(request, instance)) return std::nullopt;
    return gateway.decide_or_reject(request, view.of({&instance, 1}));
  }

  // The permit returns as if an instance had refused the request.
  void reject_unrouted(GatewayReplica& gateway, RequestId request,
                       workload::ReasonCode why = {workload::Stage::router, 0}) {
    context_.states.outcome[request.index()] = Outcome::rejected;
    context_.states.reason[request.index()] = why;
    context_.events.push({context_.now, Phase::permit_release, 0, request.value});
    gateway.unrouted(request);
    if (gateway.routed()) drain(gateway);
  }

  [[gnu::always_inline]] void send(GatewayReplica& gateway, RequestId request,
                                   const router::Target& target) {
    gateway.send(request, target);
    fleet_.send(request, target);
    load_events_.sent(gateway.index(), request, target.instance);
    if (gateway.routed()) drain(gateway);
  }

  void first_token(RequestId request) override {
    GatewayReplica& gateway = gateways_.of(request);
    const InstanceId instance = context_.instance_of(request);
    load_events_.first_token(gateway.index(), request, instance);
    const Time entered_engine = context_.states.enqueued[request.index()];
    if (gateway.first_token(request, instance, entered_engine)) drain(gateway);
  }

  void finished(RequestId request) override {
    GatewayReplica& gateway = gateways_.of(request);
    const InstanceId instance = context_.instance_of(request);
    gateway.finished(request, instance);
    fleet_.left(request);
    load_events_.finished(gateway.index(), request, instance);
  }

  void released(RequestId request) override {
    GatewayReplica& gateway = gateways_.of(request);
    const Outcome outcome = context_.states.outcome[request.index()];
    const bool is_in_vain =
        fleet_.notices_late() && outcome == Outcome::completed && clients_.has_departed(request);
    if (is_in_vain) fleet_.completed_in_vain(request);
    context_.statistics.released(request, context_.now);
    sampler_.released(request, is_in_vain ? Outcome::cancelled : outcome);
    fleet_.released(request, outcome);
    const bool drains = gateway.release(request, outcome);
    leave(request);
    if (drains) drain_last(gateway);
  }

  // The attempt has ended.
  void leave(RequestId request) {
    if (clients_.left(request) || !context_.streams()) return;
    context_.statistics.add(request);
    context_.states.clear(request);
    context_.requests.retire(request);
  }

  // Handles requests that have left a queue without being dispatched.
  void drop(const gateway::Departures& departures) {
    for (const RequestId request : departures.dropped) {
      sampler_.dropped(request);
      leave(request);
    }
  }

  // A withdrawn request in transit leaves when it reaches the next stage.
  void withdraw_if_late(RequestId request) {
    if (clients_.has_timed_out(request)) withdraw(request);
  }
  void withdraw_from_instance(RequestId request) {
    const Time delay = fleet_.notice_delay(context_.instance_of(request));
    const bool has_departed = clients_.has_departed(request);
    if (delay > Time{0} && !has_departed) return clients_.depart(request, delay);
    if (!has_departed || clients_.is_noticed(request)) {
      fleet_.cancel(request, Outcome::cancelled);
    }
  }
  void withdraw(RequestId request) {
    const Outcome where = context_.states.outcome[request.index()];
    if (where == Outcome::running) return withdraw_from_instance(request);
    if (where == Outcome::in_transit && pools_) {
      return pools_->withdraw(request, Outcome::cancelled);
    }
    if (where != Outcome::queued) return;
    GatewayReplica& gateway = gateways_.of(request);
    drop(gateway.withdraw(request));
    if (gateway.on_queue_departures()) drain(gateway);
  }

  // ---- timers ------------------------------------------------------------------------------

  void expire(GatewayReplica& gateway) {
    const gateway::Departures& departures = gateway.expire();
    const bool has_gap = !departures.dropped.empty();
    drop(departures);
    if (has_gap && gateway.on_queue_departures()) drain(gateway);
    gateway.watch_timeouts();
  }

  void tick(GatewayReplica& gateway) {
    const auto view = fleet_signals_for(gateway);
    if (gateway.tick(view ? &*view : nullptr)) {
      DrainSchedule& drains = gateway.drains();
      const bool was_pending = drains.is_pending();
      if (drains.wake(Time{0})) drain(gateway);
      drains.attribute_to_tick(!was_pending);
    }
    const bool is_due_again = continues();
    gateway.schedule_tick(is_due_again, is_due_again ? skip_ticks(gateway) : Time{0});
  }

  // Skips scrapes of a worker that read what the last one has read.
  void skip_scrapes(InstanceId worker) {
    if (load_events_.was_lost(worker)) return;
    idle_spans_.skip(until_, [&](Time until) { return load_events_.skip_scrapes(worker, until); });
  }

  // Skips ticks of an idle gateway that are like the last one. Returns how long they take.
  Time skip_ticks(GatewayReplica& gateway) {
    const bool is_fleet_steady = idle_spans_.has_steady_metrics(gateways_.counters());
    const Time settled_until = gateway.ticks_settled_until(is_fleet_steady);
    if (settled_until <= context_.now) return Time{0};
    return idle_spans_.skip(
        until_, [&](Time until) { return gateway.skip_ticks(std::min(until, settled_until)); });
  }

  void change_settings() {
    while (const std::optional<DueChange> change = setting_changes_.take_due()) {
      const Version& to = change->to;
      if (to.target_instances) fleet_.set_target(*to.target_instances);
      load_events_.set_thresholds(to.simulation.busy_monitor);
      if (!change->concerns_gateways) continue;
      for (const auto& gateway : gateways_.replicas()) {
        if (gateway->change(change->from, to.simulation, change->of_tenants())) drain(*gateway);
      }
    }
  }

  void resize_fleet() {
    std::optional<Time> since;
    if (fleet_.reads_controllers()) since = context_.now - fleet_.poll_period();
    if (fleet_.resize(gateways_.load(since))) {
      for (const auto& gateway : gateways_.replicas()) {
        if (gateway->set_workers(fleet_.num_ready())) drain(*gateway);
      }
    }
    if (!continues()) return;
    const Time settled_until = is_empty() ? fleet_.settled_until() : Time{0};
    if (settled_until > context_.now) {
      idle_spans_.skip(
          until_, [&](Time until) { return fleet_.skip_polls(std::min(until, settled_until)); });
    }
    fleet_.schedule_resize();
  }

  void sample() {
    metrics::Sample state{.at = context_.now};
    std::vector<metrics::TenantSample> tenants(context_.requests.tenants.size());
    fleet_.add_to(state, tenants);
    gateways_.add_to(state, tenants);
    sampler_.sample(state, tenants, continues());
  }

  signals::View view_for(const GatewayReplica& gateway) {
    load_events_.renew();
    return fleet_.view(gateway.local_state());
  }
  // Only if needed, because a view may renew the readings of `on_read`.
  std::optional<signals::View> fleet_signals_for(const GatewayReplica& gateway) {
    if (!context_.needs.fleet_signals) return std::nullopt;
    return view_for(gateway);
  }

  // Ends a run that is interrupted or in a livelock.
  void check_progress() {
    const std::uint64_t events = context_.events.popped();
    interruption_.ask(events);
    if (events >= pause_after_) {
      pause_after_ = kPaused;
      until_ = context_.now;
    }
    if (events % LivelockGuard::kInterval != 0) return;
    if (pools_ && !clients_.has_pending()) pools_->check_preemptions();
    livelock_.check(context_, clients_, horizon_, gateways_.counters().present(),
                    [this](const Event& event) { handle(event); });
  }

  static_assert(LivelockGuard::kInterval % Interruption::kEventsBetweenCalls == 0);

  RunOptions options_;
  Context context_;
  Clients clients_;
  std::unique_ptr<Pools> pools_;  // null unless groups have roles
  Fleet fleet_;
  LoadEvents load_events_;
  Sampler sampler_;
  FittedStates fitted_states_;
  Gateways gateways_;
  SettingChanges setting_changes_;
  IdleSpans idle_spans_;
  Interruption interruption_;
  LivelockGuard livelock_;
  bool has_models_;  // requests name models
  bool passes_;      // requests may `pass`
  Time until_{0};    // up to which events are handled
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::uint64_t kPaused = kNever - 1;
  std::uint64_t pause_after_ = kNever;  // number of events so far
  bool has_wound_down_ = false;         // something periodic has ended, because all requests have
  Time horizon_;
  Time admission_latency_;
  Time routing_latency_;
  Time decision_latency_;
  bool is_decision_special_ = decision_latency_ > Time{0};  // see `route_specially`
  std::vector<std::optional<router::Target>> decided_;  // of requests whose decision is under way
};

Output run(const Simulation& simulation, std::uint64_t seed, const RunOptions& options) {
  if (!options.is_checked) sim::check(simulation);
  check_has_requests(simulation);
  const InsideRun inside;
  Run run(simulation, seed, options, later_versions(simulation));
  run.start();
  run.advance(run.horizon());
  return run.finish();
}

std::unique_ptr<HeldRun> hold(const Simulation& simulation, std::uint64_t seed,
                              RunOptions options) {
  auto run =
      std::make_unique<Run>(simulation, seed, std::move(options), later_versions(simulation));
  run->start();
  return run;
}

}  // namespace spillway::cluster
