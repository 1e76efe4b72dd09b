#include "cluster/run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cluster/choices.h"
#include "cluster/clients.h"
#include "cluster/context.h"
#include "cluster/decision_delay.h"
#include "cluster/fitted_states.h"
#include "cluster/fleet.h"
#include "cluster/gateway_health.h"
#include "cluster/gateways.h"
#include "cluster/health.h"
#include "cluster/held_run.h"
#include "cluster/idle_spans.h"
#include "cluster/interruption.h"
#include "cluster/livelock.h"
#include "cluster/load_events.h"
#include "cluster/migrations.h"
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
        migrations_(has_migration(simulation)
                        ? std::make_unique<Migrations>(context_, own_listener())
                        : nullptr),
        pools_(has_pools(simulation)
                   ? std::make_unique<Pools>(context_, own_listener(), migrations_.get())
                   : nullptr),
        fleet_(context_, listener(), options_.reference, options_.step_logs, pools_.get()),
        load_events_(context_, fleet_.instances(), fleet_.scrapes()),
        sampler_(context_),
        fitted_states_(context_),
        gateways_(context_, fleet_.ranks(), context_.needs.tokens_by_group ? &fleet_ : nullptr),
        setting_changes_(context_, std::move(later)),
        gateway_health_(
            make_gateway_health(context_, fleet_, gateways_, load_events_, setting_changes_)),
        idle_spans_(context_, options_.reference),
        interruption_(options_.interrupted),
        livelock_(static_cast<std::uint64_t>(clients_.max_attempts())),
        choices_(context_, clients_, fleet_),
        choices_differ_(choices_.differ()),
        passes_(!options_.reference && simulation.fleet.is_constant() && !choices_differ_ &&
                !has_faults(simulation) && !gateways_.may_crash() &&
                gateways_.replicas().front()->never_holds()),
        horizon_(sim::from_seconds(simulation.horizon_s.value_or(sim::kLongestSpan_s))),
        admission_latency_(sim::from_seconds(simulation.gateway.admission_latency_s)),
        routing_latency_(sim::from_seconds(simulation.gateway.routing_latency_s)),
        decisions_(context_) {
    for (GatewayReplica* gateway : gateways_.replicas()) {
      gateway->set_busy_workers(load_events_.known_to(gateway->index()));
      is_decision_special_ = is_decision_special_ || gateway->may_reject();
    }
    clients_.set_open(options_.is_open);
    if (migrations_) migrations_->connect(clients_, fleet_, gateways_, load_events_);
    if (pools_) pools_->connect(fleet_, gateways_, load_events_, clients_.submissions());
    is_decision_special_ = is_decision_special_ || choices_differ_ || migrations_ || pools_;
    for (const Change& change : simulation.changes) {
      const Time at = sim::from_seconds(change.at_s);
      for (const workload::Submission& submission : change.submit) add(submission, at);
      for (const std::int64_t number : change.cancel) cancel(static_cast<std::size_t>(number), at);
      for (const workload::HandOff& to : change.hand_off) clients_.hand_off(to, at);
    }
  }

  /// Schedules what happens by itself.
  void start() {
    clients_.start();
    for (GatewayReplica* gateway : gateways_.replicas()) gateway->start(fleet_.num_ready());
    change_settings();
    if (!context_.simulation.fleet.is_constant()) resize_fleet();
    if (Health* health = fleet_.health()) health->start();
    if (gateway_health_) gateway_health_->start();
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
    if (has_wound_down_ || clients_.send_beside() || !shares || !knows(request))
      return std::nullopt;
    return add(request, at);
  }
  bool knows(const workload::Submission& request) const override {
    return clients_.submissions().are_known(request);
  }
  void cancel(std::size_t number, Time at) override { clients_.cancel(number, at); }
  bool hand_off(const workload::HandOff& to, Time at) override {
    if (!has_wound_down_) clients_.hand_off(to, at);
    return !has_wound_down_;
  }
  bool fail(std::span<const fleet::Fault> faults, Time at) override {
    return add_faults(faults, at, fleet_.health(), gateway_health_.get());
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
  std::vector<std::string> tenants() const override { return tenant_names(context_.requests); }

  bool has_pending_work() const override {
    const bool awaits_instances =
        !fleet_.has_workers() &&
        (fleet_.awaits_instances(gateways_.counters()) || setting_changes_.will_set_target());
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
    Output output = report({context_, clients_, gateways_, fleet_, load_events_, pools_.get(),
                            migrations_.get(), gateway_health_.get(), horizon_});
    output.decisions = std::move(gateways_.decisions());
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
      if (pools_) pools_->check();
      gateways_.check();
#endif
      if (context_.events.popped() % Interruption::kEventsBetweenCalls == 0) check_progress();
    }
  }

  workload::RequestListener& own_listener() { return *this; }
  workload::RequestListener& listener() {
    if (pools_) return *pools_;
    if (migrations_) return *migrations_;
    return clients_.listener(*this);
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
        if (const auto waiting = clients_.timer_of(event)) react(*waiting);
        return;
      case Phase::admission:
        return has_lost_gateway(request) ? lose(request) : admit(request);
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
        return event.tie() == 0 ? change_settings() : change_submission(event);
      case Phase::fleet_change:
        return event.tie() == 0 ? resize_fleet() : change_health(event);
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

  [[gnu::always_inline]] void arrive(RequestId request) {
    if (context_.learns_lengths) context_.requests.arrived(request);
    gateways_.take(request).submit();
    sampler_.submitted(request);
    clients_.submitted(request);
  }

  [[gnu::always_inline]] void submit(RequestId request) {
    arrive(request);
    if (has_lost_gateway(request)) [[unlikely]]
      return lose(request);
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
        choices_differ_ ? ask(choices_.seen(request, view)) : ask(view);
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
    const bool has_workers = fleet_.has_workers();
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
    const auto target = decisions_.take(request);
    if (has_lost_gateway(request)) {
      return reject_unrouted(gateway, request, workload::kGatewayLost, Outcome::failed);
    }
    target ? send(gateway, request, *target) : route(gateway, request, view_for(gateway));
  }

  [[gnu::always_inline]] void route(GatewayReplica& gateway, RequestId request,
                                    const signals::View& view) {
    if (is_decision_special_) return route_specially(gateway, request, view);
    send(gateway, request, gateway.decide(request, view));
  }

  // A decision that takes time, may find no instance, has one choice, or is about two pools.
  [[gnu::noinline]] void route_specially(GatewayReplica& gateway, RequestId request,
                                         const signals::View& view) {
    if (pools_) {
      if (pools_->is_in_handoff(request)) return pools_->route_decode(request);
      if (const auto why = pools_->route(request)) return reject_unrouted(gateway, request, *why);
      if (gateway.routed()) drain(gateway);
      return;
    }
    const std::optional<signals::View> choices = choices_.of(request, view);
    const auto target =
        choices ? gateway.decide_or_reject(request, *choices) : std::optional<router::Target>();
    if (!target) return reject_unrouted(gateway, request);
    if (migrations_) migrations_->routed(request);
    if (decisions_.is_on()) return decisions_.begin(request, *target);
    send(gateway, request, *target);
  }

  // The permit returns as if an instance had refused the request. What lost its instance fails.
  void reject_unrouted(GatewayReplica& gateway, RequestId request,
                       workload::ReasonCode why = {workload::Stage::router, 0},
                       Outcome outcome = Outcome::rejected) {
    if (!migrations_ || !migrations_->fails(request)) {
      context_.states.outcome[request.index()] = outcome;
      context_.states.reason[request.index()] = why;
    }
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
    bool is_in_vain = false;
    if (may_end_specially_) [[unlikely]] {
      if (gateway_health_) gateway_health_->released(request);
      if (migrations_ && migrations_->take(request)) return;
      const bool is_unnoticed = fleet_.notices_late() && clients_.has_departed(request);
      is_in_vain = is_unnoticed && outcome == Outcome::completed;
      if (is_unnoticed) fleet_.ended_in_vain(request, outcome);
    }
    if (context_.learns_lengths && outcome == Outcome::completed && !is_in_vain) {
      context_.requests.completed(request);
    }
    context_.statistics.released(request, context_.now);
    sampler_.released(request, is_in_vain ? Outcome::cancelled : outcome);
    fleet_.released(request, outcome);
    const bool drains = gateway.release(request, outcome);
    leave(request);
    if (drains) drain_last(gateway);
  }

  // The attempt has ended.
  [[gnu::always_inline]] void leave(RequestId request) {
    if (clients_.left(request) || !context_.streams()) return;
    context_.statistics.add(request);
    context_.states.clear(request);
    context_.requests.retire(request);
  }

  // Handles requests that have left a queue without being dispatched.
  [[gnu::always_inline]] void drop(const gateway::Departures& departures) {
    for (const RequestId request : departures.dropped) {
      sampler_.dropped(request);
      leave(request);
    }
  }

  bool has_lost_gateway(RequestId request) const {
    return gateway_health_ && gateway_health_->has_lost(request);
  }
  void lose(RequestId request) {
    if (gateway_health_->lose(request)) leave(request);
  }

  // A withdrawn request in transit leaves when it reaches the next stage.
  void withdraw_if_late(RequestId request) {
    if (has_lost_gateway(request)) return lose(request);
    if (clients_.has_timed_out(request)) withdraw(request);
  }
  // A client's timer. Its second copy arrives as others do, after what is due before.
  void react(RequestId request) {
    if (clients_.has_timed_out(request)) return withdraw(request);
    if (const auto copy = clients_.hedge(request)) {
      arrive(*copy);
      context_.events.push({context_.now + admission_latency_, Phase::admission, 0, copy->value});
    }
  }
  void withdraw(RequestId request) {
    const Outcome where = context_.states.outcome[request.index()];
    if (where == Outcome::running) {
      if (pools_ && pools_->reads_on(request)) return;
      const Time delay = fleet_.notice_delay(context_.instance_of(request));
      if (clients_.leave_server(request, delay)) fleet_.cancel(request, Outcome::cancelled);
      return;
    }
    if (where == Outcome::in_transit && pools_) pools_->withdraw(request, Outcome::cancelled);
    if (where != Outcome::queued) return;
    GatewayReplica& gateway = gateways_.of(request);
    drop(gateway.withdraw(request));
    if (gateway.on_queue_departures()) drain(gateway);
  }

  void change_submission(const Event& event) {
    if (!Clients::is_hand_off(event)) {
      if (const auto withdrawn = clients_.withdraw(event.subject())) withdraw(*withdrawn);
    } else if (const auto request = clients_.hand_off(event.subject())) {
      pools_->hand_off(*request);
    }
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
    if (gateway.has_crashed()) return;
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
      fleet_.set_targets(to.targets);
      load_events_.set_thresholds(to.simulation.busy_monitor);
      if (!change->concerns_gateways) continue;
      for (GatewayReplica* gateway : gateways_.replicas()) {
        if (gateway->change(change->from, to.simulation, change->of_tenants())) drain(*gateway);
      }
    }
  }

  void resize_fleet() {
    std::optional<Time> since;
    if (fleet_.reads_controllers()) since = context_.now - fleet_.poll_period();
    note_ready(fleet_.resize(gateways_.load(since)));
    if (!continues()) return;
    const Time settled_until = is_empty() ? fleet_.settled_until() : Time{0};
    if (settled_until > context_.now) {
      idle_spans_.skip(
          until_, [&](Time until) { return fleet_.skip_polls(std::min(until, settled_until)); });
    }
    fleet_.schedule_resize();
  }

  void change_health(const Event& event) {
    if (!gateway_health_ || !gateway_health_->owns(event)) {
      return note_ready(fleet_.change_health(event, continues()));
    }
    for (const RequestId request : gateway_health_->handle(event)) lose(request);
  }

  void note_ready(bool has_changed) {
    if (pools_) pools_->note_ready();
    if (!has_changed) return;
    for (GatewayReplica* gateway : gateways_.replicas()) {
      if (gateway->set_workers(fleet_.num_ready())) drain(*gateway);
    }
  }

  void sample() {
    metrics::Sample state{.at = context_.now};
    std::vector<metrics::TenantSample> tenants(context_.requests.tenants.size());
    fleet_.add_to(state, tenants);
    gateways_.add_to(state, tenants);
    sampler_.sample(state, tenants, continues());
    if (pools_) sampler_.add(pools_->sample());
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
  std::unique_ptr<Migrations> migrations_;  // null unless requests migrate
  std::unique_ptr<Pools> pools_;            // null unless groups have roles
  Fleet fleet_;
  LoadEvents load_events_;
  Sampler sampler_;
  FittedStates fitted_states_;
  Gateways gateways_;
  SettingChanges setting_changes_;
  std::unique_ptr<GatewayHealth> gateway_health_;  // null unless replicas of the gateway crash
  IdleSpans idle_spans_;
  Interruption interruption_;
  LivelockGuard livelock_;
  Choices choices_;
  bool choices_differ_;  // between requests
  bool passes_;          // requests may `pass`
  bool may_end_specially_ = migrations_ || gateway_health_ || fleet_.notices_late();  // on release
  Time until_{0};  // up to which events are handled
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::uint64_t kPaused = kNever - 1;
  std::uint64_t pause_after_ = kNever;  // number of events so far
  bool has_wound_down_ = false;         // something periodic has ended, because all requests have
  Time horizon_;
  Time admission_latency_;
  Time routing_latency_;
  DecisionDelay decisions_;
  bool is_decision_special_ = decisions_.is_on();  // see `route_specially`
};

std::unique_ptr<HeldRun> hold(const Simulation& simulation, std::uint64_t seed,
                              RunOptions options) {
  auto run =
      std::make_unique<Run>(simulation, seed, std::move(options), later_versions(simulation));
  run->start();
  return run;
}

}  // namespace spillway::cluster
