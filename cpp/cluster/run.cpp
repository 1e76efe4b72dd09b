#include "cluster/run.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/clients.h"
#include "cluster/context.h"
#include "cluster/fitted_states.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/livelock.h"
#include "cluster/load_events.h"
#include "cluster/nesting.h"
#include "cluster/report.h"
#include "cluster/sampler.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

using sim::Event;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

namespace {

/// How long it takes until the gateway's metrics of idle instances stay the same. Readings that are
/// renewed when a decision is due depend on the decisions, and lost or stale ones on chance.
Time settling_time(const signals::Signals& transport) {
  if (std::holds_alternative<signals::Live>(transport)) return Time{0};
  const auto* scraped = std::get_if<signals::Scraped>(&transport);
  if (!scraped || scraped->loss_probability > 0 || scraped->stale_after_s) return sim::kForever;
  return sim::from_seconds(scraped->delay_s + 3 * scraped->period_s + scraped->phase_s);
}

}  // namespace

/// One run: owns the actors, takes the earliest event and passes it to the actor of its phase.
/// Results of an actor are passed on here, so no actor knows another one.
class Run final : workload::RequestListener {
 public:
  Run(const Simulation& simulation, std::uint64_t seed, RunOptions options)
      : options_(std::move(options)),
        later_(later_versions(simulation)),
        context_(simulation, seed, options_.requests, options_.interrupted, options_.is_observed,
                 later_),
        clients_(context_),
        fleet_(context_, *this, options_.reference),
        load_events_(context_, fleet_.instances(), fleet_.scrapes()),
        sampler_(context_),
        fitted_states_(context_),
        gateways_(context_, fleet_.ranks(), context_.needs.tokens_by_group ? &fleet_ : nullptr),
        settling_time_(settling_time(simulation.signals)),
        livelock_(static_cast<std::uint64_t>(clients_.max_attempts())),
        passes_(!options_.reference && simulation.fleet.is_constant() &&
                gateways_.replicas().front()->never_holds()),
        horizon_(sim::from_seconds(simulation.horizon_s.value_or(sim::kLongestSpan_s))),
        admission_latency_(sim::from_seconds(simulation.gateway.admission_latency_s)),
        routing_latency_(sim::from_seconds(simulation.gateway.routing_latency_s)) {
    for (const auto& gateway : gateways_.replicas()) {
      gateway->set_busy_workers(load_events_.known_to(gateway->index()));
    }
    for (const Change& change : simulation.changes) {
      for (const workload::Submission& one : change.submit) {
        clients_.submit(one, sim::from_seconds(change.at_s));
      }
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
    for (const Version& one : to_come()) schedule_change(one.from);
  }

  /// Changes settings at an instant after all that has happened. Throws ConfigError. False: this
  /// takes a run from the start, because of what this one has scheduled or measures.
  bool set(const sim::Value::Map& values, Time at) {
    std::vector<Version> next = versions_from(context_.simulation, later_, at, values);
    for (const Version& one : next) {
      const bool is_measured = (context_.needs | needs_of(one.simulation)) == context_.needs &&
                               (context_.follows_loads || !depends_on_loads(one.simulation));
      if (!is_measured) return false;
    }
    // Ticks, scrapes and samples have ended if the queued requests had no instance to wait for.
    const bool has_given_up = gateways_.counters().queued() > 0 && !has_pending_work();
    if (has_given_up && has_target(next)) return false;
    forget_past_versions();
    const auto num_derived_again = static_cast<std::ptrdiff_t>(next.size()) - 1;
    later_.erase(later_.end() - num_derived_again, later_.end());
    later_.insert(later_.end(), std::make_move_iterator(next.begin()),
                  std::make_move_iterator(next.end()));
    schedule_change(at);
    return true;
  }

  /// A request from outside the workload, at an instant after all that has happened. Unset: this
  /// takes a run from the start, because this one does not know its tenant or class, or has acted
  /// as if no request would follow.
  std::optional<std::size_t> submit(const workload::Submission& request, Time at) {
    if (has_wound_down_ || !clients_.submissions().are_known(request)) return std::nullopt;
    return clients_.submit(request, at);
  }
  const Submissions& submissions() const { return clients_.submissions(); }

  /// Handles all events up to an instant, those of the instant included.
  void advance(Time until) { handle_events(until, false); }
  /// The same while there are requests, or requests to come.
  void advance_while_busy(Time until) { handle_events(until, true); }
  /// The same until `requests` more have arrived. Returns the instant up to which all has happened.
  Time advance_by(std::int64_t requests) {
    const std::size_t enough = context_.record->offered + static_cast<std::size_t>(requests);
    handle_events(horizon_, true, enough);
    const bool is_at_horizon = context_.record->offered < enough && !is_idle() &&
                               context_.events.next_due() != sim::kForever;
    const Time reached = is_at_horizon ? horizon_ : context_.now;
    advance_while_busy(reached);
    return reached;
  }

  Time horizon() const { return horizon_; }
  /// The instant of the last event.
  Time now() const { return context_.now; }

  std::vector<std::string> tenants() const {
    std::vector<std::string> names;
    names.reserve(context_.requests.tenants.size());
    for (const workload::Tenant& one : context_.requests.tenants) names.push_back(one.name);
    return names;
  }

  /// Whether requests have pending events, apart from the effects of ticks. Ticks, scrapes and
  /// samples continue as long as they do.
  bool has_pending_work() const {
    const bool awaits_instances =
        fleet_.awaits_instances() || (fleet_.num_ready() == 0 && has_target(to_come()));
    return clients_.has_pending() || gateways_.has_pending_work(awaits_instances);
  }

  /// The state at an instant up to which all events have been handled: the true one, or as the
  /// gateway sees it, whose own counts are always fresh.
  Observation observe(Time now, bool is_true) {
    context_.now = now;
    Observation seen{.state = {.at = now}, .tenants = {}, .instances = {}};
    seen.tenants.resize(context_.requests.tenants.size());
    fleet_.add_to(seen.state, seen.tenants);
    gateways_.add_to(seen.state, seen.tenants);
    sampler_.add_to(seen.tenants);
    if (is_true) return seen;
    seen.state.waiting = seen.state.running = 0;
    seen.state.kv_utilization = 0;
    if (fleet_.num_ready() == 0) return seen;
    for (const InstanceId id : fleet_.ready()) {
      SeenInstance& one = seen.instances.emplace_back();
      one.id = id;
      one.signal = fleet_.seen(id);
      for (const auto& gateway : gateways_.replicas()) {
        one.in_flight += gateway->local_state().in_flight[id.index()];
      }
      seen.state.waiting += one.signal.waiting;
      seen.state.running += one.signal.running;
      seen.state.kv_utilization += one.signal.kv_utilization;
    }
    seen.state.kv_utilization /= static_cast<double>(seen.instances.size());
    return seen;
  }

  /// Ends the run: what has not ended by the horizon is unfinished.
  Output finish() {
    fleet_.close(horizon_);
    context_.statistics.add_rest();
    Output output = report({context_, clients_, gateways_, fleet_, load_events_, horizon_});
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
      for (const auto& one : fleet_.instances()) one->check_memory();
#endif
      if (context_.events.popped() % kEventsBetweenLooks == 0) check_progress();
    }
  }

  // Whether no request is in the system.
  bool is_empty() const { return gateways_.counters().present() == 0; }

  // Whether all requests have ended. What happens next by itself depends on whether more will come.
  bool is_idle() const { return !has_pending_work() && is_empty(); }

  // Whether what is done periodically is done once more.
  bool continues() {
    const bool is_busy = has_pending_work();
    has_wound_down_ = has_wound_down_ || !is_busy;
    return is_busy;
  }

  [[gnu::always_inline]] void handle(const Event& event) {
    const RequestId request{event.subject()};
    context_.begin(event);
    switch (event.phase()) {
      case Phase::source_arrival:
      case Phase::user_arrival:
      case Phase::retry_arrival:
      case Phase::outside_arrival:
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
        return change_settings();
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
    const auto [is_admitted, departures] =
        gateway.admit(request, clients_.retries_of(request), view);
    drop(departures);
    if (!is_admitted) {
      sampler_.shed(request);
      return leave(request);
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
    for (const RequestId victim : departures.evicted) fleet_.evict(victim);
  }

  void dispatch(RequestId request) {
    GatewayReplica& gateway = gateways_.of(request);
    route(gateway, request, view_for(gateway));
  }

  [[gnu::always_inline]] void route(GatewayReplica& gateway, RequestId request,
                                    const signals::View& view) {
    const router::Target target = gateway.route(request, view);
    fleet_.send(request, target);
    load_events_.sent(gateway.index(), request, target.instance);
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
    context_.statistics.released(request, context_.now);
    sampler_.released(request, outcome);
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
  void withdraw(RequestId request) {
    const Outcome where = context_.states.outcome[request.index()];
    if (where == Outcome::running) return fleet_.cancel(request, Outcome::cancelled);
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
    skip_calm([&](Time until) { return load_events_.skip_scrapes(worker, until); });
  }

  // Skips ticks of an idle gateway that are like the last one. Returns how long they take.
  Time skip_ticks(GatewayReplica& gateway) {
    const Time settled_until = gateway.ticks_settled_until(has_steady_metrics());
    if (settled_until <= context_.now) return Time{0};
    return skip_calm(
        [&](Time until) { return gateway.skip_ticks(std::min(until, settled_until)); });
  }

  // Whether metrics of the instances, as gateways see them, stay the same while the system is
  // empty. To be called at every tick.
  bool has_steady_metrics() {
    const gateway::GatewayCounters counters = gateways_.counters();
    if (counters.present() > 0 || counters.attempts != attempts_before_calm_) {
      attempts_before_calm_ = counters.attempts;
      calm_since_ = context_.now;
    }
    return counters.present() == 0 && context_.now - calm_since_ >= settling_time_;
  }

  // Calls `skip_until` with the time before which nothing happens but ticks, scrapes and samples,
  // which change nothing for each other in an empty system. It returns the time that was skipped.
  // The pending events are looked through seldom while that yields nothing.
  Time skip_calm(const auto& skip_until) {
    if (options_.reference || ++num_calm_ < patience_) return Time{0};
    num_calm_ = 0;
    const Time next = context_.events.next_due_besides(kPeriodic);
    const Time skipped = skip_until(std::min(until_ + Time{1}, next));
    patience_ = skipped > Time{0} ? kLeastPatience : std::min(2 * patience_, kMostPatience);
    return skipped;
  }

  std::span<const Version> to_come() const { return std::span(later_).subspan(next_version_); }
  static bool has_target(std::span<const Version> versions) {
    return std::ranges::any_of(versions,
                               [](const Version& one) { return one.target_instances.has_value(); });
  }

  void schedule_change(Time at) { context_.events.push({at, Phase::settings_change, 0, 0}); }

  void change_settings() {
    while (next_version_ < later_.size() && later_[next_version_].from <= context_.now) {
      const Simulation& from =
          next_version_ == 0 ? context_.simulation : later_[next_version_ - 1].simulation;
      change(from, later_[next_version_++]);
    }
  }

  // All before the one in force: a session may change settings at every tick.
  void forget_past_versions() {
    if (next_version_ <= 1) return;
    later_.erase(later_.begin(), later_.begin() + static_cast<std::ptrdiff_t>(next_version_) - 1);
    next_version_ = 1;
  }

  void change(const Simulation& from, const Version& version) {
    const Simulation& to = version.simulation;
    if (version.target_instances) fleet_.set_target(*version.target_instances);
    load_events_.set_thresholds(to.busy_monitor);
    std::vector<workload::Tenant> tenants = context_.requests.tenants;
    gateway::TenantChange change{.to = tenants};
    for (std::size_t i = 0; i < to.tenants.size(); ++i) {
      if (!sim::differ(from.tenants[i], to.tenants[i])) continue;
      change.are_new = true;
      change.are_weights_new |= from.tenants[i].weight != to.tenants[i].weight;
    }
    const bool concerns_gateways = change.are_new || sim::differ(from.gateway, to.gateway) ||
                                   sim::differ(from.router, to.router);
    if (!concerns_gateways) return;
    for (workload::Tenant& one : tenants) {
      const auto own = std::ranges::find(to.tenants, one.name, &workload::Tenant::name);
      if (own != to.tenants.end()) one = *own;
    }
    for (const auto& gateway : gateways_.replicas()) {
      if (gateway->change(from, to, change)) drain(*gateway);
    }
  }

  void resize_fleet() {
    const gateway::GatewayCounters counters = gateways_.counters();
    if (fleet_.resize(counters.queued(), counters.shed())) {
      for (const auto& gateway : gateways_.replicas()) {
        if (gateway->set_workers(fleet_.num_ready())) drain(*gateway);
      }
    }
    if (!continues()) return;
    const Time settled_until = is_empty() ? fleet_.settled_until() : Time{0};
    if (settled_until > context_.now) {
      skip_calm([&](Time until) { return fleet_.skip_polls(std::min(until, settled_until)); });
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
    if (options_.interrupted && events >= next_question_) {
      plan_next_question(events);
      if (options_.interrupted()) throw sim::Interrupted();
    }
    if (events % LivelockGuard::kInterval != 0) return;
    livelock_.check(context_, clients_, horizon_, gateways_.counters().present(),
                    [this](const Event& event) { handle(event); });
  }

  // A question costs more than an event, but an event may also take milliseconds: that of a policy
  // in Python, or of a large fleet.
  void plan_next_question(std::uint64_t events) {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < 10ms) spacing_ = std::min(2 * spacing_, LivelockGuard::kInterval);
    if (now - asked_ > 40ms) spacing_ = std::max(spacing_ / 2, kEventsBetweenLooks);
    asked_ = now;
    next_question_ = events + spacing_;
  }

  static constexpr std::uint64_t kEventsBetweenLooks = 64;
  static_assert(LivelockGuard::kInterval % kEventsBetweenLooks == 0);

  RunOptions options_;
  std::uint64_t next_question_ = 0;  // number of events before it is asked whether to end
  std::uint64_t spacing_ = kEventsBetweenLooks;
  std::chrono::steady_clock::time_point asked_;
  std::vector<Version> later_;
  std::size_t next_version_ = 0;  // of the later ones
  Context context_;
  Clients clients_;
  Fleet fleet_;
  LoadEvents load_events_;
  Sampler sampler_;
  FittedStates fitted_states_;
  Gateways gateways_;
  Time settling_time_;  // of the metrics of an empty system; kForever: they never settle
  LivelockGuard livelock_;
  bool passes_;  // requests may `pass`
  static constexpr std::uint32_t kPeriodic = sim::EventQueue::bit_of(Phase::controller_tick) |
                                             sim::EventQueue::bit_of(Phase::telemetry) |
                                             sim::EventQueue::bit_of(Phase::timeline_sample);
  static constexpr std::int64_t kLeastPatience = 8;
  static constexpr std::int64_t kMostPatience = 4096;
  std::int64_t attempts_before_calm_ = 0;
  Time calm_since_{0};         // the system has been empty at every tick
  Time until_{0};              // up to which events are handled
  std::int64_t num_calm_ = 0;  // chances to skip since the pending events were looked through
  std::int64_t patience_ = kLeastPatience;  // chances until the next time
  bool has_wound_down_ = false;  // something periodic has ended, because all requests have
  Time horizon_;
  Time admission_latency_;
  Time routing_latency_;
};

Output run(const Simulation& simulation, std::uint64_t seed, const RunOptions& options) {
  if (!options.is_checked) sim::check(simulation);
  check_has_requests(simulation);
  const InsideRun inside;
  Run run(simulation, seed, options);
  run.start();
  run.advance(run.horizon());
  return run.finish();
}

Session::Session(Simulation simulation, std::uint64_t seed, RunOptions options)
    : simulation_(std::move(simulation)) {
  if (!options.is_checked) sim::check(simulation_);
  check_has_requests(simulation_);
  options.is_observed = true;
  const InsideRun inside;
  run_ = std::make_unique<Run>(simulation_, seed, std::move(options));
  run_->start();
  tenants_ = run_->tenants();
}
Session::~Session() = default;

Run& Session::run_for(const char* call) const {
  if (failed_in_ != nullptr) {
    throw sim::UsageError(std::string(call) + ": an error ended the run of this session, inside " +
                          failed_in_ + "; a fork can still be made, as of now_s");
  }
  if (!run_) throw sim::UsageError(std::string(call) + ": the session is over: finish was called");
  return *run_;
}

auto Session::handle(const char* call, const auto& work) {
  const sim::Exclusive::Call alone(calls_, call);
  const InsideRun inside;
  Run& run = run_for(call);
  try {
    return work(run);
  } catch (const sim::Interrupted&) {  // between two events
    now_ = std::max(now_.load(), run.now());
    throw;
  } catch (...) {
    failed_in_ = call;
    throw;
  }
}

auto Session::ask(const char* call, const auto& work) const {
  const sim::Exclusive::Call alone(calls_, call);
  return work(run_for(call));
}

void Session::advance(Time until) {
  handle("advance", [&](Run& run) {
    const Time last = std::min(until, run.horizon());
    run.advance_while_busy(last);
    now_ = std::max(now_.load(), last);
  });
}
void Session::advance_by(std::int64_t requests) {
  handle("advance", [&](Run& run) { now_ = std::max(now_.load(), run.advance_by(requests)); });
}
bool Session::has_pending_work() const {
  return ask("has_pending_work", [](const Run& run) { return run.has_pending_work(); });
}
bool Session::set(const sim::Value::Map& values, Time at) {
  return ask("set", [&](Run& run) {
    const bool is_taken = run.set(values, at);
    if (is_taken) ++num_changes_;
    return is_taken;
  });
}
Observation Session::observe(bool is_true) {
  return handle("observe", [&](Run& run) {
    run.advance(now_);
    return run.observe(now_, is_true);
  });
}
std::optional<std::size_t> Session::submit(const workload::Submission& request, Time at) {
  return ask("submit", [&](Run& run) {
    const std::optional<std::size_t> number = run.submit(request, at);
    if (number) ++num_changes_;
    return number;
  });
}
std::size_t Session::num_submitted() const {
  return ask("num_submitted", [](const Run& run) { return run.submissions().size(); });
}
SubmissionStatus Session::status(std::size_t number) const {
  return ask("status", [&](const Run& run) {
    if (number >= run.submissions().size()) {
      throw sim::UsageError("status: no request has the number " + std::to_string(number));
    }
    return run.submissions().status(number, now_);
  });
}

Output Session::finish() {
  return handle("finish", [&](Run& run) {
    run.advance(run.horizon());
    Output output = run.finish();
    run_.reset();
    return output;
  });
}

}  // namespace spillway::cluster
