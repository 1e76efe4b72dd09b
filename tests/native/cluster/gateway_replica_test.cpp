// One replica of the gateway in front of instances with scripted metrics: the test takes its
// events, and scripts the end of dispatched requests.
#include "cluster/gateway_replica.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "actors.h"
#include "check.h"
#include "fake_instance.h"
#include "signals/view.h"

using namespace spillway;
using cluster::Context;
using cluster::GatewayReplica;
using cluster::Simulation;
using gateway::Departures;
using sim::Event;
using sim::from_seconds;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

namespace {

constexpr std::uint32_t kIndex = 3;

/// A replica in front of two instances.
struct GatewaySetup {
  explicit GatewaySetup(Simulation of) : simulation(std::move(of)), context(simulation, 1) {
    context.states.resize(context.requests.capacity());
  }

  signals::View view() const { return {sources, replica.local_state(), context.now}; }
  /// A request reaches the gateway for admission.
  bool admit(std::size_t request) {
    replica.submit();
    return replica.admit(RequestId{request}, 0, view()).admitted;
  }
  /// The request joins its queue, which is drained. Returns the dispatched requests.
  Ids join(std::size_t request) {
    check(admit(request), "admitted");
    check(replica.queued(), "drain");
    return drain();
  }
  Ids drain() {
    const signals::View seen = view();
    return ids(replica.drain(&seen, true).dispatched);
  }
  /// The request has been served. True: drain.
  bool end(std::size_t request, InstanceId instance, Outcome outcome = Outcome::completed) {
    replica.finished(RequestId{request}, instance);
    return replica.release(RequestId{request}, outcome);
  }
  const gateway::GatewayCounters& counters() const { return replica.pipeline().counters(); }

  Simulation simulation;
  Context context;
  FakeFleet fleet{2};
  std::vector<signals::SignalSource*> instances = fleet.sources();
  signals::Sources sources{.instances = instances};
  std::vector<std::size_t> ranks{1, 1};
  router::DecisionLog log;
  GatewayReplica replica{context, kIndex, 0, ranks, log, nullptr};
};

Simulation with_limit(const gateway::Limit& limit, const std::vector<Offered>& offered) {
  Simulation simulation = simulation_of(offered);
  simulation.gateway.limit = {limit};
  return simulation;
}

gateway::FixedLimit at_most(std::int64_t in_flight) { return {.max_in_flight = in_flight}; }

// ---- the way of a request ------------------------------------------------------------------

// One permit, and a router that sees five requests on the first instance.
void a_request_passes_through() {
  Simulation simulation = with_limit(at_most(1), {{}, {}});
  simulation.router = router::LeastLoaded{};
  GatewaySetup setup(simulation);
  setup.fleet[0].reported.running = 5;
  set_clock(setup.context, 2);
  check(setup.admit(0), "admitted");
  check(setup.context.states.outcome[0] == Outcome::queued, "in its queue");
  check(setup.replica.queued(), "which is to be drained at once");
  check(setup.drain() == Ids{0}, "it is dispatched");
  check(setup.context.num_in_flight == 1 && setup.context.last_change == from_seconds(2),
        "a change");
  check(setup.join(1).empty() && !has_events(setup.context), "the second one waits for a permit");
  check(setup.replica.route(RequestId{0}, setup.view()).instance == kSecondInstance,
        "the idle instance");
  check(setup.replica.local_state().in_flight[1] == 1, "which has one in flight");
  set_clock(setup.context, 3);
  check(!setup.replica.first_token(RequestId{0}, kSecondInstance, from_seconds(2)),
        "the permit is held");
  setup.replica.finished(RequestId{0}, kSecondInstance);
  check(setup.replica.local_state().in_flight[1] == 0, "it has left the instance");
  check(setup.replica.has_pending_work(false), "its permit is to return");
  check(setup.replica.release(RequestId{0}, Outcome::completed), "drain");
  check(setup.context.num_in_flight == 0, "none is in flight");
  check(setup.drain() == Ids{1}, "the second one is dispatched");
  check(setup.context.states.dispatched[1] == from_seconds(3), "when the permit returned");
  setup.replica.route(RequestId{1}, setup.view());
  check(!setup.end(1, kSecondInstance), "no drain of empty queues");
  check(setup.counters().dispatched == 2 && setup.counters().ended == 2, "books");
  check(!setup.replica.has_pending_work(true) && !has_events(setup.context), "all is done");
}

void a_refused_request_is_not_queued() {
  Simulation simulation = simulation_of({{}});
  simulation.gateway.max_queued = 0;
  GatewaySetup setup(simulation);
  check(!setup.admit(0) && setup.counters().rejected == 1, "the queue is full");
  check(!setup.replica.has_pending_work(true), "it is over");
}

void a_request_before_admission_is_pending_work() {
  GatewaySetup setup(simulation_of({{}}));
  setup.replica.submit();
  check(setup.replica.has_pending_work(false), "it is to be admitted or not");
}

void a_first_token_may_return_a_permit() {
  GatewaySetup setup(with_limit(gateway::DualLimit{.max_awaiting_first_token = 1}, {{}, {}}));
  check(setup.join(0) == Ids{0} && setup.join(1).empty(), "one without a token at a time");
  setup.replica.route(RequestId{0}, setup.view());
  check(setup.replica.first_token(RequestId{0}, kFirstInstance, Time{0}), "drain");
  check(setup.drain() == Ids{1}, "the second one");
}

void queues_are_drained_after_a_latency() {
  Simulation simulation = with_limit(at_most(1), {{}, {}});
  simulation.gateway.drain_latency_s = 0.5;
  GatewaySetup setup(simulation);
  check(setup.admit(0) && !setup.replica.queued(), "not at once");
  check(setup.admit(1) && !setup.replica.queued(), "nor for the second one");
  const Event first = take(setup.context);
  check(is(first, Phase::queue_drain, 0.5, kIndex), "once for both");
  check(setup.replica.is_drain_due(first.phase()), "drain");
  check(setup.drain() == Ids{0}, "one permit");
  setup.replica.route(RequestId{0}, setup.view());
  set_clock(setup.context, 2);
  check(!setup.end(0, kFirstInstance), "not at once");
  check(is(take(setup.context), Phase::queue_drain, 2.5, kIndex), "half a second later");
}

// One request per attempt.
void attempts_follow_while_requests_wait() {
  Simulation simulation = simulation_of({{}, {}, {}});
  simulation.gateway.dispatch = gateway::Dispatch::one_per_attempt;
  simulation.gateway.attempt_period_s = 1;
  GatewaySetup setup(simulation);
  for (std::size_t i = 0; i < 3; ++i) check(setup.admit(i), "admitted");
  check(setup.replica.queued() && setup.drain() == Ids{0}, "one as they join");
  for (std::size_t i = 1; i < 3; ++i) {
    const Event event = take(setup.context);
    check(is(event, Phase::dispatch_attempt, static_cast<double>(i), kIndex), "one a second");
    check(setup.replica.is_drain_due(event.phase()) && setup.drain() == Ids{i}, "in order");
  }
  check(!has_events(setup.context), "none waits");
}

void a_held_request_makes_no_attempts() {
  Simulation simulation = with_limit(at_most(0), {{}});
  simulation.gateway.dispatch = gateway::Dispatch::one_per_attempt;
  GatewaySetup setup(simulation);
  check(setup.join(0).empty() && !has_events(setup.context), "nothing can open the gate");
}

// Five waiting requests saturate an instance. The report of a shorter queue opens the limit.
void requests_that_saturation_holds_are_tried_again() {
  Simulation simulation = with_limit(gateway::Saturation{}, {{}, {}});
  simulation.gateway.attempt_period_s = 1;
  GatewaySetup setup(simulation);
  check(setup.join(0) == Ids{0}, "the fleet is idle");
  setup.fleet[0].reported.waiting = 9;
  setup.fleet[1].reported.waiting = 3;
  check(setup.join(1).empty(), "the mean of 9/5 and 3/5 is 1.2");
  const Event first = take(setup.context);
  check(is(first, Phase::dispatch_attempt, 1, kIndex), "an attempt a second later");
  check(setup.replica.is_drain_due(first.phase()) && setup.drain().empty(), "as before");
  setup.fleet[0].reported.waiting = 6;
  const Event second = take(setup.context);
  check(is(second, Phase::dispatch_attempt, 2, kIndex), "the next one");
  check(setup.replica.is_drain_due(second.phase()) && setup.drain() == Ids{1}, "0.9 is below 1");
}

// ---- withdrawals and time-outs -------------------------------------------------------------

Simulation with_timeout(const std::vector<Offered>& offered) {
  Simulation simulation = with_limit(at_most(0), offered);
  simulation.gateway.bands[0].queue.timeout_s = 5;
  return simulation;
}

// The requests join at 0 s and 1 s and may wait for 5 s.
void one_time_out_is_pending_at_a_time() {
  GatewaySetup setup(with_timeout({{}, {.arrival_s = 1}}));
  check(setup.join(0).empty(), "held");
  set_clock(setup.context, 1);
  check(setup.join(1).empty() && setup.replica.has_pending_work(false), "held");
  check(is(take(setup.context), Phase::queue_expiry, 5, kIndex), "the earliest");
  check(!has_events(setup.context), "only one");
  check(ids(setup.replica.expire().dropped) == Ids{0}, "the first one");
  check(setup.context.states.outcome[0] == Outcome::expired, "its wait is over");
  setup.replica.watch_timeouts();
  setup.replica.watch_timeouts();
  check(is(take(setup.context), Phase::queue_expiry, 6, kIndex), "the next one");
  check(ids(setup.replica.expire().dropped) == Ids{1} && !has_events(setup.context), "once");
  setup.replica.watch_timeouts();
  check(!has_events(setup.context) && !setup.replica.has_pending_work(false), "none waits");
}

void time_outs_are_watched_before_a_late_drain() {
  Simulation simulation = with_timeout({{}});
  simulation.gateway.drain_latency_s = 9;
  GatewaySetup setup(simulation);
  check(setup.admit(0) && !setup.replica.queued(), "to be drained at 9 s");
  check(is(take(setup.context), Phase::queue_expiry, 5, kIndex), "its time-out comes first");
}

void a_withdrawn_request_leaves_its_queue() {
  GatewaySetup setup(with_timeout({{}, {.arrival_s = 1}}));
  setup.join(0);
  set_clock(setup.context, 1);
  setup.join(1);
  set_clock(setup.context, 2);
  check(ids(setup.replica.withdraw(RequestId{0}).dropped) == Ids{0}, "it has left");
  check(setup.context.states.outcome[0] == Outcome::cancelled, "by its client");
  check(!setup.replica.on_queue_departures(), "the other one does not wait for it");
  check(is(take(setup.context), Phase::queue_expiry, 5, kIndex), "the time-out that was pending");
  check(setup.replica.expire().dropped.empty(), "is of none that waits");
  setup.replica.watch_timeouts();
  check(is(take(setup.context), Phase::queue_expiry, 6, kIndex), "the one of the other");
}

// 50 tokens of 100 are in flight: the next prompt is too long, and the one behind it must wait.
void a_gap_lets_the_request_behind_go() {
  GatewaySetup setup(
      with_limit(gateway::TokenBudget{.max_tokens_in_flight = 100},
                 {{.input_tokens = 50}, {.input_tokens = 80}, {.input_tokens = 20}}));
  check(setup.join(0) == Ids{0}, "it fits");
  check(setup.join(1).empty() && setup.join(2).empty(), "the head blocks");
  set_clock(setup.context, 3);
  check(ids(setup.replica.withdraw(RequestId{1}).dropped) == Ids{1}, "the head leaves");
  check(setup.replica.on_queue_departures(), "drain");
  check(setup.context.last_change == from_seconds(3), "a change");
  check(setup.drain() == Ids{2}, "the one behind it");
}

// The view of policies on requests that were admitted and not served yet.
void what_leaves_a_queue_is_not_outstanding() {
  Simulation simulation = with_timeout({{.input_tokens = 10}, {.input_tokens = 10}});
  simulation.gateway.admission = {
      gateway::PredictiveTtft{.budgets = {{.slo_class = "standard", .budget_s = 1000}}}};
  GatewaySetup setup(simulation);
  const signals::Outstanding& outstanding = *setup.replica.local_state().outstanding;
  setup.join(0);
  setup.join(1);
  check(outstanding.queued(0).requests == 2, "both wait");
  check(setup.replica.withdraw(RequestId{0}).dropped.size() == 1, "one is withdrawn");
  check(outstanding.queued(0).requests == 1, "one waits");
  set_clock(setup.context, 5);
  check(setup.replica.expire().dropped.size() == 1, "it expires");
  check(outstanding.queued(0).requests == 0, "none waits");
}

// ---- workers -------------------------------------------------------------------------------

void requests_wait_for_workers() {
  GatewaySetup setup(with_limit(gateway::WorkerBudget{.cap_per_worker = 1}, {{}, {}, {}}));
  setup.replica.start(0);
  for (std::size_t i = 0; i < 3; ++i) check(setup.admit(i), "admitted");
  check(setup.replica.drain(nullptr, false).dispatched.empty(), "there are none");
  check(setup.replica.has_pending_work(true), "some are awaited");
  check(!setup.replica.has_pending_work(false), "but if none is to come, they wait indefinitely");
  check(setup.replica.set_workers(2), "drain");
  check(setup.drain() == Ids{0, 1}, "one for each worker");
  check(setup.replica.set_workers(3), "one more worker");
  check(setup.drain() == Ids{2}, "one more request");
  check(!setup.replica.set_workers(1), "no request waits");
}

// ---- ticks ---------------------------------------------------------------------------------

Simulation with_controller() {
  Simulation simulation = with_limit(at_most(1), {{}, {}});
  simulation.gateway.controller = gateway::Aimd{.target_s = 2};
  simulation.gateway.sensor.tick_s = 1;
  simulation.gateway.sensor.tick_drift_s = 0;
  simulation.gateway.sensor.min_samples = 1;
  simulation.gateway.sensor.source = signals::SensorSource::queue_delay;
  simulation.gateway.sensor.aggregation = signals::Aggregation::mean;
  return simulation;
}

void there_are_no_ticks_without_a_controller() {
  GatewaySetup setup(with_limit(at_most(1), {{}}));
  setup.replica.start(2);
  setup.join(0);
  check(!has_events(setup.context), "none");
}

void ticks_follow_each_other_while_the_run_goes_on() {
  GatewaySetup setup(with_controller());
  setup.replica.start(2);
  check(is(take(setup.context), Phase::controller_tick, 1, kIndex), "the first one");
  check(!setup.replica.tick(nullptr), "no request waits");
  setup.replica.schedule_tick(true);
  check(is(take(setup.context), Phase::controller_tick, 2, kIndex), "the next one");
  check(!setup.replica.tick(nullptr), "no request waits");
  check(setup.replica.pipeline().control_log().size() == 2, "two so far");
  setup.replica.schedule_tick(false);
  check(!has_events(setup.context), "the last one");
}

void a_dispatch_restarts_the_ticks() {
  GatewaySetup setup(with_controller());
  setup.replica.start(2);
  check(setup.join(0) == Ids{0}, "while a tick is due");
  take(setup.context);
  check(!has_events(setup.context), "that one only");
  setup.replica.schedule_tick(false);
  setup.replica.route(RequestId{0}, setup.view());
  setup.end(0, kFirstInstance);
  set_clock(setup.context, 7.5);
  check(setup.join(1) == Ids{1}, "while none is");
  check(is(take(setup.context), Phase::controller_tick, 8.5, kIndex), "an interval later");
  check(!has_events(setup.context), "one");
}

// Requests leave their queue without delay, so the limit rises by one.
void a_tick_may_let_a_request_go() {
  GatewaySetup setup(with_controller());
  setup.replica.start(2);
  check(setup.join(0) == Ids{0} && setup.join(1).empty(), "one permit");
  take(setup.context);
  check(setup.replica.tick(nullptr), "a request waits");
  check(setup.replica.drains().wake(Time{0}) && setup.drain() == Ids{1}, "for a second permit");
}

// ---- ids that stand for several requests ---------------------------------------------------

/// A simulation with requests added by hand, kept only while they are in the system.
Simulation open_ended(const gateway::Limit& limit) {
  Simulation simulation = with_limit(limit, {});
  simulation.metrics.streaming = true;
  return simulation;
}

RequestId arrive(Context& context) {
  const RequestId id =
      context.requests.add({.time = context.now, .input_tokens = 10, .output_tokens = 10});
  if (context.states.size() < context.requests.capacity()) {
    context.states.resize(context.requests.capacity());
  }
  return id;
}

void retire(Context& context, RequestId id) {
  context.states.clear(id);
  context.requests.retire(id);
}

void an_id_is_given_to_the_next_request() {
  GatewaySetup setup(open_ended(at_most(1)));
  const RequestId first = arrive(setup.context);
  const workload::RequestHandle handle = setup.context.requests.handle(first);
  check(setup.join(first.index()) == Ids{first.index()}, "dispatched");
  setup.replica.route(first, setup.view());
  check(setup.context.requests.find(handle) == first, "it is in the system");
  check(!setup.end(first.index(), kFirstInstance), "served");
  retire(setup.context, first);
  check(!setup.context.requests.find(handle), "it is over");
  const RequestId second = arrive(setup.context);
  check(second == first && setup.context.requests.row(second) == 1, "the same id");
  check(!setup.context.requests.find(handle), "but another request");
  check(setup.join(second.index()) == Ids{second.index()}, "which has a way of its own");
  check(setup.replica.route(second, setup.view()).instance == kSecondInstance,
        "to the next instance");
  check(setup.counters().dispatched == 2 && setup.counters().in_flight() == 1, "books");
}

// ---- a wall clock --------------------------------------------------------------------------

/// A request that has left the queues of a server, by its position in the order of arrival.
struct Left {
  std::uint32_t row = 0;
  std::int64_t at_ms = 0;
  friend bool operator==(const Left&, const Left&) = default;
};

/// A gateway in a program of its own: the program reads its clock now and then and handles the
/// events that are due. Queue handling takes 2 ms, and an instance 10 ms to answer.
class Server {
 public:
  explicit Server(const Simulation& simulation) : setup_(simulation) {}

  /// The clock shows `clock_ms`, after `submissions` new requests.
  void turn(std::int64_t clock_ms, int submissions) {
    clock_ = from_seconds(static_cast<double>(clock_ms) / 1000);
    Event event;
    while (setup_.context.events.pop(clock_, event)) handle(event);
    setup_.context.now = clock_;
    answer_what_is_done();
    for (int i = 0; i < submissions; ++i) submit();
  }
  const std::vector<Left>& dispatched() const { return dispatched_; }
  const std::vector<Left>& expired() const { return expired_; }
  bool is_idle() { return !setup_.replica.has_pending_work(true) && in_service_.empty(); }

 private:
  struct InService {
    RequestId id;
    InstanceId instance;
    Time until;
  };

  void submit() {
    const RequestId id = arrive(setup_.context);
    check(setup_.admit(id.index()), "admitted");
    if (setup_.replica.queued()) drain();
  }
  void handle(const Event& event) {
    setup_.context.begin(event);
    setup_.context.now = clock_;  // which may be late
    switch (event.phase()) {
      case Phase::queue_drain:
        if (setup_.replica.is_drain_due(event.phase())) drain();
        return;
      case Phase::queue_expiry:
        for (const RequestId id : setup_.replica.expire().dropped) {
          leave(expired_, id);
          retire(setup_.context, id);
        }
        return setup_.replica.watch_timeouts();
      default:
        check(false, "a gateway has no other timers here");
    }
  }
  void drain() {
    const signals::View seen = setup_.view();
    for (const RequestId id : setup_.replica.drain(&seen, true).dispatched) {
      leave(dispatched_, id);
      in_service_.push_back(
          {id, setup_.replica.route(id, setup_.view()).instance, clock_ + from_seconds(0.01)});
    }
  }
  void answer_what_is_done() {
    while (!in_service_.empty() && in_service_.front().until <= clock_) {
      const InService done = in_service_.front();
      in_service_.erase(in_service_.begin());
      if (setup_.end(done.id.index(), done.instance)) drain();
      retire(setup_.context, done.id);
    }
  }
  void leave(std::vector<Left>& where, RequestId id) {
    where.push_back({setup_.context.requests.row(id), clock_.ns / 1'000'000});
  }

  GatewaySetup setup_;
  Time clock_{0};
  std::vector<InService> in_service_;  // in order of their ends
  std::vector<Left> dispatched_;
  std::vector<Left> expired_;
};

// Two at a time, with a time-out of 25 ms.
Simulation served_by_hand() {
  Simulation simulation = open_ended(at_most(2));
  simulation.gateway.bands[0].queue.timeout_s = 0.025;
  simulation.gateway.drain_latency_s = 0.002;
  return simulation;
}

// The first three arrive at 1 ms, the queues are drained at 3 ms. Two are answered at 13 ms, and
// the queues are drained at 15 ms; and so on. The last one has waited since 9 ms.
void a_wall_clock_drives_a_replica() {
  Server server(served_by_hand());
  for (std::int64_t ms = 0; ms <= 60; ++ms) {
    server.turn(ms, ms == 1 ? 3 : ms == 5 || ms == 8 ? 1 : ms == 9 ? 2 : 0);
  }
  check(
      server.dispatched() == std::vector<Left>{{0, 3}, {1, 3}, {2, 15}, {3, 15}, {4, 27}, {5, 27}},
      "in order, two at a time");
  check(server.expired() == std::vector<Left>{{6, 34}}, "25 ms after it came");
  check(server.is_idle(), "all is done");
}

// A clock that is read every 4 ms: all requests arrive at 4 ms, their drain is due at 6 ms and
// happens at 8 ms. The answers of 18 ms are seen at 20 ms, and the drain of 22 ms happens at 24 ms.
void a_wall_clock_may_be_late() {
  Server server(served_by_hand());
  for (std::int64_t ms = 0; ms <= 60; ms += 4) server.turn(ms, ms == 4 ? 4 : 0);
  check(server.dispatched() == std::vector<Left>{{0, 8}, {1, 8}, {2, 24}, {3, 24}},
        "at the next reading");
  check(server.expired().empty() && server.is_idle(), "all were served");
}

}  // namespace

CASES(a_request_passes_through, a_refused_request_is_not_queued,
      a_request_before_admission_is_pending_work, a_first_token_may_return_a_permit,
      queues_are_drained_after_a_latency, attempts_follow_while_requests_wait,
      a_held_request_makes_no_attempts, requests_that_saturation_holds_are_tried_again,
      one_time_out_is_pending_at_a_time, time_outs_are_watched_before_a_late_drain,
      a_withdrawn_request_leaves_its_queue, a_gap_lets_the_request_behind_go,
      what_leaves_a_queue_is_not_outstanding, requests_wait_for_workers,
      there_are_no_ticks_without_a_controller, ticks_follow_each_other_while_the_run_goes_on,
      a_dispatch_restarts_the_ticks, a_tick_may_let_a_request_go,
      an_id_is_given_to_the_next_request, a_wall_clock_drives_a_replica, a_wall_clock_may_be_late);
