#include "cluster/run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cluster/clients.h"
#include "cluster/context.h"
#include "cluster/fleet.h"
#include "cluster/livelock.h"
#include "cluster/load_events.h"
#include "cluster/report.h"
#include "cluster/sampler.h"
#include "router/router.h"
#include "signals/outstanding.h"
#include "signals/prefix_index.h"
#include "signals/transports.h"
#include "signals/view.h"
#include "sim/event_queue.h"
#include "sim/mix.h"
#include "sim/rng.h"
#include "sim/schema/codec.h"
#include "workload/generate.h"
#include "workload/requests.h"
#include "workload/synthetic.h"
#include "workload/trace.h"

namespace spillway::cluster {

using sim::Event;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

constexpr std::uint64_t kEventsBetweenChecks = 1u << 14;

/// So many events of a livelock are told apart.
constexpr int kEventsTallied = 1000;

/// So many scrapes after the last change, signals have told of it, lost ones or not.
constexpr double kScrapesAwaited = 100;

// The requests of a run, kept or passing through.
std::shared_ptr<RequestRecord> take_requests(const Simulation& simulation, std::uint64_t seed,
                                             const RunOptions& options) {
  const sim::Time warm_up = sim::from_seconds(simulation.warm_up_s);
  std::shared_ptr<const workload::Requests> requests = options.requests;
  if (!requests) requests = offered_requests(simulation, seed, options.interrupted);
  const metrics::Accounting accounting = simulation.metrics.accounting;
  if (requests && !simulation.metrics.streaming) {
    return std::make_shared<RequestRecord>(accounting, std::move(requests), simulation.tenants,
                                           simulation.slo_classes, warm_up);
  }
  const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
  auto stream = trace ? workload::stream(*trace)
                      : workload::stream(std::get<workload::Synthetic>(simulation.workload), seed,
                                         simulation.quantum_ns);
  return std::make_shared<RequestRecord>(
      accounting, std::move(stream), !simulation.metrics.streaming,
      trace ? trace->requests : nullptr, simulation.tenants, simulation.slo_classes, warm_up);
}

// With the columns that the simulation fills, without rows yet.
std::shared_ptr<RequestRecord> make_record(const Simulation& simulation, std::uint64_t seed,
                                           const RunOptions& options) {
  std::shared_ptr<RequestRecord> record = take_requests(simulation, seed, options);
  workload::Journal& journal = record->journal;
  journal.reports = simulation.metrics.accounting == metrics::Accounting::blis;
  journal.has_ranks = std::any_of(simulation.instances.begin(), simulation.instances.end(),
                                  [](const auto& group) { return group.data_parallel_size > 1; });
  const std::size_t groups = record->requests.num_groups();
  simulation.metrics.streaming ? journal.token_gaps.approximate.resize(groups)
                               : journal.token_gaps.exact.resize(groups);
  return record;
}

/// The event loop of one run: takes the earliest event and hands it to the stage it belongs to.
class Run final : workload::RequestListener {
 public:
  Run(const Simulation& simulation, std::uint64_t seed, const RunOptions& options)
      : simulation_(simulation),
        options_(options),
        record_(make_record(simulation, seed, options)),
        context_{
            .simulation = simulation,
            .seed = seed,
            .needs = gateway::needs_of(simulation.gateway) | router::needs_of(simulation.router),
            .requests = record_->requests,
            .journal = record_->journal,
            .events = sim::EventQueue(Fleet::num_engines(simulation))},
        requests_(record_->requests),
        journal_(record_->journal),
        sampler_(context_),
        fleet_(context_, *this, options.reference),
        clients_(context_),
        decisions_(static_cast<std::size_t>(simulation.metrics.traced_candidates),
                   router::rates_ranks(simulation.router) ? Fleet::num_engines(simulation)
                                                          : Fleet::num_instances(simulation)),
        statistics_(simulation, *record_),
        admission_latency_(sim::from_seconds(simulation.gateway.admission_latency_s)),
        drain_latency_(sim::from_seconds(simulation.gateway.drain_latency_s)),
        has_timeouts_(gateway::has_timeouts(simulation.gateway)),
        horizon_(sim::from_seconds(simulation.horizon_s.value_or(sim::kLongestSpan_s))),
        is_controlled_(gateway::is_controlled(simulation.gateway)),
        polls_saturation_(gateway::has_saturation_limit(simulation.gateway)),
        load_events_(context_, fleet_.instances(), fleet_.scrapes()),
        one_per_attempt_(simulation.gateway.dispatch == gateway::Dispatch::one_per_attempt),
        attempt_period_(sim::from_seconds(simulation.gateway.attempt_period_s)),
        longest_news_(longest_news(simulation.signals)),
        livelock_(static_cast<std::uint64_t>(clients_.max_attempts())) {
    journal_.resize(requests_.capacity());
    make_gateways(seed);
  }

  Output operator()() {
    clients_.start();
    if (!fleet_.is_constant()) resize_fleet();
    schedule_ticks();
    load_events_.start();
    Event event;
    while (context_.events.pop(horizon_, event)) {
      context_.now = event.time();
      handle(event);
#ifdef SPILLWAY_CHECK_EVERY_EVENT
      for (const auto& one : fleet_.instances()) one->check_memory();
#endif
      if (context_.events.popped() % kEventsBetweenChecks == 0) check_progress();
    }
    return finish();
  }

 private:
  static Time longest_news(const signals::Signals& transport) {
    if (const auto* scraped = std::get_if<signals::Scraped>(&transport)) {
      return sim::from_seconds(scraped->delay_s + kScrapesAwaited * scraped->period_s);
    }
    const auto* on_read = std::get_if<signals::OnRead>(&transport);
    return on_read ? sim::from_seconds(on_read->period_s) : Time{0};
  }

  // Ends a run that is stopped from outside, or whose clock stands still.
  void check_progress() {
    if (options_.interrupted && options_.interrupted()) throw sim::Interrupted();
    std::int64_t present = 0;
    for (const auto& front : fronts_) present += front->pipeline.books().present();
    const std::size_t others = Fleet::num_engines(simulation_) + clients_.num_users();
    if (!livelock_.suspects(context_.now, context_.events.popped(),
                            static_cast<std::uint64_t>(present) + others)) {
      return;
    }
    LivelockTally tally;
    Event event;
    for (int i = 0; i < kEventsTallied; ++i) {
      if (!context_.events.pop(horizon_, event)) return;
      const bool advances = event.time() > context_.now;
      tally.add(event.phase(), actor_of(event));
      context_.now = event.time();
      handle(event);
      if (advances) return;
    }
    throw sim::LivelockError(tally.message(context_.now));
  }

  // Who an event is about, in words.
  std::string actor_of(const Event& event) const {
    const std::string number = std::to_string(event.subject());
    switch (event.phase()) {
      case Phase::step_end:
      case Phase::step_start:
        return "engine " + number;
      case Phase::fleet_change:
        return "the fleet";
      case Phase::controller_tick:
      case Phase::queue_drain:
      case Phase::dispatch_attempt:
      case Phase::queue_expiry:
        return "gateway " + number;
      case Phase::timeline_sample:
        return "the timeline";
      case Phase::telemetry:
      case Phase::instance_expiry:
      case Phase::ingress:
        return "instance " + std::to_string(event.tie());
      case Phase::source_arrival:
        return "the source";
      case Phase::user_arrival:
        return clients_.name_of_user(event.subject());
      default:
        return clients_.name_of_client(RequestId{event.subject()});
    }
  }
  bool streaming() const { return simulation_.metrics.streaming; }
  /// A replica of the gateway, with what it knows by itself.
  struct Front {
    std::size_t index;
    gateway::Pipeline pipeline;
    router::Dispatcher dispatcher;
    Time drain_due = sim::kUnset;
    bool drain_is_ticks = false;      // a tick asked for it or for an attempt, nobody else
    bool ticks = false;               // a tick is due
    bool attempts = false;            // an attempt to dispatch is due by the clock
    Time next_attempt = sim::kUnset;  // of a series of them, whether or not it is due
    Time timeout_due = sim::kForever;

    // Whether the queues are to be drained for any other reason than a tick.
    bool is_drain_asked_for() const {
      return (sim::is_set(drain_due) || attempts) && !drain_is_ticks;
    }
  };

  void make_gateways(std::uint64_t seed) {
    const gateway::Gateway& config = simulation_.gateway;
    const std::size_t instances = fleet_.instances().size();
    std::vector<std::size_t> ranks;
    ranks.reserve(instances);
    for (const auto& one : fleet_.instances()) ranks.push_back(one->num_ranks());
    for (std::int64_t i = 0; i < config.replicas; ++i) {
      fronts_.push_back(std::make_unique<Front>(
          static_cast<std::size_t>(i),
          gateway::Pipeline(config, static_cast<std::uint16_t>(i), requests_, journal_,
                            context_.events, instances, seed),
          router::Dispatcher(simulation_.router, simulation_.prefix_index,
                             context_.needs.prefix_index
                                 ? std::make_unique<signals::PrefixIndex>(simulation_.prefix_index,
                                                                          requests_, ranks)
                                 : nullptr,
                             context_.needs.outstanding
                                 ? std::make_unique<signals::Outstanding>(requests_, instances)
                                 : nullptr,
                             instances, seed, decisions_)));
      gateway::Pipeline& pipeline = fronts_.back()->pipeline;
      pipeline.set_workers(fleet_.num_ready());
      if (context_.needs.emitted_tokens) pipeline.set_meter(fleet_);
    }
  }

  // Which replica of the gateway has the request.
  std::size_t replica_of(RequestId id) const {
    const std::size_t n = fronts_.size();
    if (n == 1) return 0;
    switch (simulation_.gateway.split) {
      case gateway::Split::round_robin:
        return requests_.row(id) % n;
      case gateway::Split::tenant_hash:
        return sim::mix(requests_.tenant(id)) % n;
      case gateway::Split::random:
        break;
    }
    return sim::Draws(context_.seed, sim::Stream::gateways, requests_.row(id)).below(n);
  }
  Front& front_of(RequestId id) { return *fronts_[replica_of(id)]; }

  signals::View view_of(const Front& front) {
    load_events_.renew();
    signals::OwnRecord own = front.dispatcher.own();
    own.busy = load_events_.known_to(front.index);
    return fleet_.view(own);
  }

  // What a gateway sees that looks at the instances of its own accord; none if it does not. To look
  // may renew what `on_read` keeps.
  std::optional<signals::View> reports_to(const Front& front) {
    if (!context_.needs.fleet_signals) return std::nullopt;
    return view_of(front);
  }

  // ---- instances that come and go ----------------------------------------------------------

  void resize_fleet() {
    std::int64_t queued = 0;
    std::int64_t shed = 0;
    for (const auto& front : fronts_) {
      queued += front->pipeline.books().queued();
      shed += front->pipeline.books().shed();
    }
    if (fleet_.resize(queued, shed)) {
      for (std::size_t i = 0; i < fronts_.size(); ++i) {
        fronts_[i]->pipeline.set_workers(fleet_.num_ready());
        if (fronts_[i]->pipeline.books().queued() > 0) wake(i, drain_latency_);
      }
    }
    if (is_busy()) fleet_.schedule_resize();
  }

  // Whether anything is still to happen to a request, apart from what a tick may set off. Ticks and
  // samples go on as long.
  bool is_busy() const {
    if (clients_.has_pending()) return true;
    const bool awaits_workers = fleet_.awaits_instances();
    return std::any_of(fronts_.begin(), fronts_.end(), [&](const auto& front) {
      const gateway::Books& books = front->pipeline.books();
      return books.attempts > books.admitted + books.rejected || books.in_flight() > 0 ||
             front->is_drain_asked_for() || front->pipeline.next_timeout() != sim::kForever ||
             (awaits_workers && books.queued() > 0);
    });
  }

  void schedule_ticks() {
    if (is_controlled_) {
      for (std::size_t i = 0; i < fronts_.size(); ++i) schedule_tick(i);
    }
    sampler_.start();
  }
  void schedule_tick(std::size_t replica) {
    const auto which = static_cast<std::uint32_t>(replica);
    fronts_[replica]->ticks = true;
    context_.events.push({context_.now + simulation_.gateway.sensor.interval(),
                          Phase::controller_tick, which, which});
  }
  void tick(std::size_t replica) {
    Front& front = *fronts_[replica];
    const std::optional<signals::View> view = reports_to(front);
    front.pipeline.tick(view ? &*view : nullptr, context_.now);
    if (front.pipeline.books().queued() > 0) {
      const bool was_asked_for = front.is_drain_asked_for();
      wake(replica, Time{0});
      front.drain_is_ticks = !was_asked_for;
    }
    front.ticks = is_busy();
    if (front.ticks) schedule_tick(replica);
  }

  // ---- the life of a request ---------------------------------------------------------------

  void submit(RequestId request) {
    front_of(request).pipeline.arrive();
    sampler_.submitted(request);
    clients_.submitted(request);
    if (context_.can_run_inline(admission_latency_)) return admit(request);
    context_.events.push({context_.now + admission_latency_, Phase::admission, 0, request.value});
  }

  // Also for a request that has just reached a stage.
  void withdraw_if_late(RequestId request) {
    if (clients_.is_out_of_patience(request)) withdraw(request);
  }
  // Where it is between two stages, it goes once it has reached the next one.
  void withdraw(RequestId request) {
    switch (journal_.outcome[request.index()]) {
      case workload::Outcome::queued: {
        const std::size_t replica = replica_of(request);
        fronts_[replica]->pipeline.withdraw(request, {workload::Stage::client, 0}, context_.now);
        close_gaps(replica);
        break;
      }
      case workload::Outcome::running:
        fleet_.cancel(request, workload::Outcome::cancelled);
        break;
      default:
        break;
    }
  }

  // Whether an event of the phase is about a request or an instance, whatever comes of it.
  static constexpr bool is_change(Phase phase) {
    return phase <= Phase::permit_release || phase >= Phase::source_arrival;
  }

  void handle(const Event& event) {
    const RequestId request{event.subject()};
    if (is_change(event.phase())) context_.last_change = context_.now;
    if (event.phase() > Phase::dispatch_attempt) drains_over_ = context_.now;
    switch (event.phase()) {
      case Phase::source_arrival:
      case Phase::user_arrival:
        return submit(clients_.arrive(event));
      case Phase::retry_arrival:
        statistics_.retried(request);
        clients_.retry(request);
        return submit(request);
      case Phase::admission:
        return admit(request);
      case Phase::queue_drain:
        return drain_as_asked(event.subject());
      case Phase::dispatch_attempt:
        return attempt(event.subject());
      case Phase::queue_expiry:
        return expire(event.subject());
      case Phase::instance_expiry:
        return fleet_.at(InstanceId{event.subject()}).expire(context_.now);
      case Phase::routing:
        return route(request);
      case Phase::ingress:
        if (const auto entering = instance::IngressSubject(event.subject()).request()) {
          return enter(*entering);
        }
        return fleet_.at(InstanceId{event.tie()}).let_in(context_.now);
      case Phase::step_start:
        return fleet_.start_step(event.subject());
      case Phase::step_end:
        return fleet_.end_step(event.subject());
      case Phase::first_token:
        return first_token(request);
      case Phase::permit_release:
        return release(request);
      case Phase::controller_tick:
        return tick(event.subject());
      case Phase::fleet_change:
        return resize_fleet();
      case Phase::timeline_sample:
        return sample();
      case Phase::client_reaction:
        if (const auto late = clients_.timer_of(event)) withdraw_if_late(*late);
        return;
      case Phase::telemetry:
        if (load_events_.handle(event) && is_busy()) {
          load_events_.schedule_scrape(InstanceId{event.tie()});
        }
        return;
    }
  }

  void admit(RequestId request) {
    const std::size_t replica = replica_of(request);
    Front& front = *fronts_[replica];
    signals::View view = view_of(front);
    if (context_.needs.next_choice) {
      view = view.knowing(front.dispatcher.preview({requests_, request}, view, context_.now));
    }
    const bool admitted = front.pipeline.admit(request, view, context_.now);
    settle_losses(front);
    if (admitted) {
      front.dispatcher.admitted({requests_, request});
      withdraw_if_late(request);
      if (drain_latency_ > Time{0}) watch_timeouts(replica);
      return request_drain(replica, drain_latency_);
    }
    sampler_.shed(request);
    leave(request);
  }

  void request_drain(std::size_t replica, Time delay) {
    Front& front = *fronts_[replica];
    front.drain_is_ticks = false;
    if (sim::is_set(front.drain_due)) return;
    if (context_.can_run_inline(delay)) return drain(replica);
    front.drain_due = context_.now + delay;
    const auto which = static_cast<std::uint32_t>(replica);
    context_.events.push({front.drain_due, Phase::queue_drain, which, which});
  }

  void drain_as_asked(std::size_t replica) {
    fronts_[replica]->drain_due = sim::kUnset;
    drain(replica);
  }
  // Something has happened that may let a request go.
  void wake(std::size_t replica, Time delay) {
    if (!one_per_attempt_) return request_drain(replica, delay);
    Front& front = *fronts_[replica];
    front.drain_is_ticks = false;
    if (!front.attempts && sim::is_set(front.next_attempt)) resume_attempts(replica);
  }

  void drain(std::size_t replica) {
    Front& front = *fronts_[replica];
    if (fleet_.num_ready() == 0) {
      if (one_per_attempt_) continue_attempts(replica, false);
      return watch_timeouts(replica);
    }
    const std::int64_t before = front.pipeline.books().dispatched;
    const std::optional<signals::View> view = reports_to(front);
    front.pipeline.drain(view ? &*view : nullptr, context_.now);
    const bool has_dispatched = front.pipeline.books().dispatched > before;
    if (has_dispatched) {
      context_.last_change = context_.now;
      if (is_controlled_ && !front.ticks) schedule_tick(replica);
    }
    settle_losses(front);
    withdraw_victims(front.pipeline);
    watch_timeouts(replica);
    if (one_per_attempt_) {
      const bool can_change =
          may_open() && !front.pipeline.is_stuck(view ? &*view : nullptr, context_.now);
      continue_attempts(replica, has_dispatched || can_change);
    } else if (polls_saturation_ && front.pipeline.books().queued() > 0 && !front.attempts &&
               may_open()) {
      push_attempt(replica, context_.now + attempt_period_);
    }
  }

  // ---- attempts by the clock ---------------------------------------------------------------
  // What the instances report may open a gate without anything that the gateway hears of: while
  // requests wait for it, it is tried again every so often, as llm-d's endpoint picker does. With
  // `one_per_attempt` a series of attempts begins a period after requests were first left waiting,
  // and ends with the first that finds none. Those of a series that cannot come to anything are
  // left out.

  // Whether reports that are still to come may open a gate.
  bool may_open() const {
    return is_serving() || context_.now <= context_.last_change + longest_news_;
  }
  void push_attempt(std::size_t replica, Time at) {
    fronts_[replica]->attempts = true;
    fronts_[replica]->drain_is_ticks = false;
    context_.events.push({at, Phase::dispatch_attempt, 0, static_cast<std::uint32_t>(replica)});
  }
  void attempt(std::size_t replica) {
    Front& front = *fronts_[replica];
    front.attempts = false;
    front.next_attempt = sim::kUnset;
    if (one_per_attempt_ && front.pipeline.books().queued() == 0) return;
    drain(replica);
  }
  // After a drain.
  void continue_attempts(std::size_t replica, bool may_succeed) {
    Front& front = *fronts_[replica];
    if (front.attempts) return;
    if (sim::is_set(front.next_attempt)) {
      if (may_succeed) resume_attempts(replica);
      return;
    }
    if (front.pipeline.books().queued() == 0) return;
    front.next_attempt = context_.now + attempt_period_;
    if (may_succeed) push_attempt(replica, front.next_attempt);
  }
  // The next one of the series that can see what has just happened.
  void resume_attempts(std::size_t replica) {
    Front& front = *fronts_[replica];
    const Time from = drains_over_ == context_.now ? context_.now + Time{1} : context_.now;
    if (front.next_attempt < from) {
      const std::int64_t missed =
          (from - front.next_attempt + attempt_period_ - Time{1}).ns / attempt_period_.ns;
      front.next_attempt = front.next_attempt + Time{missed * attempt_period_.ns};
    }
    push_attempt(replica, front.next_attempt);
  }
  bool is_serving() const {
    return std::any_of(fronts_.begin(), fronts_.end(),
                       [](const auto& front) { return front->pipeline.books().in_flight() > 0; });
  }

  // Whoever still waits may do so for ever: an event is due only for the one that times out first.
  void watch_timeouts(std::size_t replica) {
    if (!has_timeouts_) return;
    Front& front = *fronts_[replica];
    const Time next = front.pipeline.next_timeout();
    if (next >= front.timeout_due) return;
    front.timeout_due = next;
    const auto which = static_cast<std::uint32_t>(replica);
    context_.events.push({next, Phase::queue_expiry, which, which});
  }

  void expire(std::size_t replica) {
    Front& front = *fronts_[replica];
    front.timeout_due = sim::kForever;
    front.pipeline.expire(context_.now);
    if (!front.pipeline.lost().empty()) close_gaps(replica);
    watch_timeouts(replica);
  }

  // Some have left a queue by themselves. Whoever stood behind those may have been waiting for them
  // alone.
  void close_gaps(std::size_t replica) {
    Front& front = *fronts_[replica];
    context_.last_change = context_.now;
    settle_losses(front);
    if (one_per_attempt_ || (front.pipeline.heads_block() && front.pipeline.books().queued() > 0)) {
      wake(replica, drain_latency_);
    }
  }

  // Requests that a queue has lost leave the system.
  void settle_losses(Front& front) {
    for (const RequestId lost : front.pipeline.lost()) {
      front.dispatcher.lost(lost);
      if (journal_.outcome[lost.index()] != workload::Outcome::cancelled) {
        sampler_.shed(lost);
      }
      leave(lost);
    }
    front.pipeline.forget_lost();
  }

  void withdraw_victims(gateway::Pipeline& pipeline) {
    for (const RequestId victim : pipeline.victims()) fleet_.evict(victim);
    pipeline.forget_victims();
  }
  void enter(RequestId request) {
    fleet_.enter(request);
    withdraw_if_late(request);
  }

  void route(RequestId request) {
    Front& front = front_of(request);
    const router::Target target =
        front.dispatcher.route({requests_, request}, view_of(front), context_.now);
    fleet_.send(request, target);
    load_events_.sent(replica_of(request), request, target.instance);
  }

  void first_token(RequestId request) override {
    Front& front = front_of(request);
    front.dispatcher.first_token(request, context_.instance_of(request), context_.now);
    load_events_.first_token(replica_of(request), request, context_.instance_of(request));
    if (front.pipeline.first_token(request, context_.now))
      wake(replica_of(request), drain_latency_);
  }
  void finished(RequestId request) override {
    Front& front = front_of(request);
    const InstanceId worker = context_.instance_of(request);
    front.dispatcher.finished(request, worker, context_.now);
    fleet_.left(request);
    load_events_.finished(replica_of(request), request, worker);
  }
  void release(RequestId request) {
    const std::size_t replica = replica_of(request);
    const workload::Outcome outcome = journal_.outcome[request.index()];
    if (outcome == workload::Outcome::completed) sampler_.completed(request);
    if (outcome == workload::Outcome::cancelled) {
      journal_.reason[request.index()] = {workload::Stage::client, 0};
    }
    statistics_.released(request, context_.now);
    if (outcome == workload::Outcome::cancelled || outcome == workload::Outcome::evicted) {
      fleet_.schedule_entry(request);
    }
    if (fronts_[replica]->pipeline.release(request, context_.now)) wake(replica, drain_latency_);
    leave(request);
  }

  void sample() {
    metrics::Sample sample{.at = context_.now};
    for (const auto& front : fronts_) {
      sample.in_flight += front->pipeline.books().in_flight();
      sample.permits += front->pipeline.permits();
    }
    fleet_.add_to(sample);
    std::vector<metrics::TenantSample> tenants(requests_.tenants.size());
    const std::vector<std::int64_t>& tokens = fleet_.emitted(context_.now);
    const std::size_t classes = requests_.slo_classes.size();
    for (std::size_t i = 0; i < tenants.size(); ++i) {
      for (const auto& front : fronts_) {
        tenants[i].queued += front->pipeline.queued(sim::TenantId{i});
        tenants[i].dispatched += front->pipeline.dispatched(sim::TenantId{i});
      }
      for (std::size_t k = 0; k < classes; ++k) {
        tenants[i].emitted_tokens += tokens[i * classes + k];
      }
    }
    sampler_.sample(sample, tenants, is_busy());
  }

  // The attempt is over. Unless the client asks again, nothing more happens to the request.
  void leave(RequestId request) {
    if (clients_.left(request) || !streaming()) return;
    statistics_.add(request);
    journal_.clear(request);
    requests_.retire(request);
  }

  Output finish() {
    for (const auto& one : fleet_.instances()) one->close(horizon_);
    record_->offered = clients_.num_offered();
    // In streaming mode those that are still in the system; else all.
    const std::size_t ids = streaming() ? requests_.capacity() : record_->offered;
    for (std::size_t i = 0; i < ids; ++i) {
      const RequestId id{i};
      if (requests_.in_use(id)) statistics_.add(id);
    }
    FinalState end{.simulation = simulation_,
                   .record = *record_,
                   .statistics = statistics_,
                   .instances = fleet_.instances(),
                   .decisions = decisions_,
                   .last_change = context_.last_change,
                   .last_arrival = clients_.last_arrival(),
                   .horizon = horizon_};
    for (const auto& front : fronts_) {
      end.gateways.push_back(&front->pipeline);
    }
    for (std::size_t i = 0; i < fronts_.size() && load_events_.known_to(0); ++i) {
      end.busy.push_back(load_events_.known_to(i));
    }
    Output output = report(end);
    if (options_.keep_requests && !streaming()) output.record = record_;
    output.events = static_cast<std::int64_t>(context_.events.popped());
    output.decisions = std::move(decisions_);
    output.timeline = sampler_.timeline();
    return output;
  }

  const Simulation& simulation_;
  const RunOptions& options_;
  std::shared_ptr<RequestRecord> record_;
  Context context_;
  workload::RequestTable& requests_;
  workload::Journal& journal_;
  Sampler sampler_;
  Fleet fleet_;
  Clients clients_;
  router::DecisionLog decisions_;
  Statistics statistics_;
  Time admission_latency_;
  Time drain_latency_;
  bool has_timeouts_;
  Time horizon_;
  bool is_controlled_;
  bool polls_saturation_;
  LoadEvents load_events_;
  bool one_per_attempt_;
  Time attempt_period_;
  Time longest_news_;  // until all that is over is known to the gateway, as a rule
  LivelockGuard livelock_;
  Time drains_over_ = sim::kUnset;  // at this instant, events after the drains have come
  std::vector<std::unique_ptr<Front>> fronts_;
};

}  // namespace

void check_runnable(const Simulation& simulation) {
  sim::check(simulation);
  const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
  if (trace && (!trace->requests || trace->requests->size() == 0)) {
    throw sim::ConfigError({{"workload", trace->file.empty() ? "an empty trace" : trace->file,
                             "holds no requests; give it some with --trace FILE, or in Python with "
                             "spillway.read_trace(FILE)"}});
  }
}

std::shared_ptr<const workload::Requests> offered_requests(
    const Simulation& simulation, std::uint64_t seed, const std::function<bool()>& interrupted) {
  if (const auto* trace = std::get_if<workload::Trace>(&simulation.workload)) {
    return trace->requests;
  }
  const auto& synthetic = std::get<workload::Synthetic>(simulation.workload);
  if (simulation.metrics.streaming || workload::has_users(synthetic)) return nullptr;
  return workload::generate(synthetic, seed, simulation.quantum_ns, interrupted);
}

Output run(const Simulation& simulation, std::uint64_t seed, const RunOptions& options) {
  check_runnable(simulation);
  return Run(simulation, seed, options)();
}

}  // namespace spillway::cluster
