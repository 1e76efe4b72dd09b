// Load events of workers with scripted readings: when each worker is read, and the load known to
// each gateway.
#include "cluster/load_events.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "actors.h"
#include "check.h"
#include "fake_instance.h"
#include "instance/ranks.h"
#include "signals/scrapes.h"

using namespace spillway;
using cluster::Context;
using cluster::LoadEvents;
using cluster::Simulation;
using sim::Event;
using sim::from_seconds;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;
using workload::Stage;

namespace {

// Prompts of 80 tokens, of which two exceed the threshold of 100.
Simulation two_workers(const signals::Signals& signals, std::int64_t gateways = 1) {
  Simulation simulation = simulation_of({{.input_tokens = 80}, {.input_tokens = 80}});
  simulation.instances = {{.count = 2}};
  simulation.busy_monitor.active_prefill_tokens_threshold = 100;
  simulation.signals = signals;
  simulation.gateway.replicas = gateways;
  return simulation;
}

struct LoadEventsSetup {
  explicit LoadEventsSetup(Simulation of) : simulation(std::move(of)), context(simulation, 1) {
    context.states.resize(2);
    if (const auto* scraped = std::get_if<signals::Scraped>(&simulation.signals)) {
      scrapes = std::make_unique<signals::Scrapes>(*scraped, 2, context.seed);
    }
    events = std::make_unique<LoadEvents>(context, fleet.instances(), scrapes.get());
    events->start();
  }

  /// The next event is of `worker` at `at_s`. True: the worker was scraped.
  bool handle_next(InstanceId worker, double at_s) {
    const Event event = take(context);
    check(event.phase() == Phase::telemetry && event.time() == from_seconds(at_s) &&
              event.tie() == worker.value,
          "an event of that worker at that instant");
    const auto scraped = events->handle(event);
    check(!scraped || *scraped == worker, "it was that worker");
    return scraped.has_value();
  }
  const signals::BusyWorkers& known(std::size_t gateway = 0) const {
    return *events->known_to(gateway);
  }
  std::int64_t prefill_tokens(InstanceId worker, std::size_t gateway = 0) const {
    return known(gateway).ranks(worker)[0].active_prefill_tokens.value();
  }
  std::int64_t used_blocks(InstanceId worker) const {
    return known().ranks(worker)[0].kv_used_blocks.value();
  }
  int reads() { return fleet[0].reads + fleet[1].reads; }

  Simulation simulation;
  Context context;
  FakeFleet fleet{2};
  std::unique_ptr<signals::Scrapes> scrapes;
  std::unique_ptr<LoadEvents> events;
};

void nothing_is_read_without_need() {
  Simulation simulation = two_workers(signals::Live{});
  simulation.busy_monitor = {};
  LoadEventsSetup setup(simulation);
  check(!setup.context.follows_loads, "no threshold");
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  setup.events->first_token(0, RequestId{0}, kFirstInstance);
  setup.events->finished(0, RequestId{0}, kFirstInstance);
  setup.events->renew();
  check(!has_events(setup.context) && setup.reads() == 0, "nothing happens");
  check(setup.events->known_to(0) == nullptr, "nothing is known");
}

void an_ingress_is_a_need() {
  Simulation simulation = two_workers(signals::Live{});
  simulation.busy_monitor = {};
  simulation.instances[0].ingress = instance::EngineRequestLimit{};
  check(Context(simulation, 1).follows_loads, "a worker may reject requests");
}

// ---- live ----------------------------------------------------------------------------------

void live_workers_are_read_once_an_instant() {
  LoadEventsSetup setup(two_workers(signals::Live{}));
  set_clock(setup.context, 1);
  setup.events->sent(0, RequestId{0}, kSecondInstance);
  setup.events->sent(0, RequestId{1}, kSecondInstance);
  check(setup.reads() == 0 && !setup.known().is_busy(kSecondInstance, Time{0}),
        "nothing has been read");
  check(!setup.handle_next(kSecondInstance, 1), "no scrape");
  check(!has_events(setup.context), "one event for both requests");
  check(setup.fleet[1].reads == 1 && setup.fleet[0].reads == 0, "the worker they are about");
  check(setup.prefill_tokens(kSecondInstance) == 160 &&
            setup.known().is_busy(kSecondInstance, Time{0}),
        "160 > 100");
  check(setup.known().ranks(kFirstInstance).empty(), "nothing is known of the other one");
  set_clock(setup.context, 2);
  setup.events->first_token(0, RequestId{0}, kSecondInstance);
  check(setup.known().is_busy(kSecondInstance, Time{0}), "until the event");
  setup.handle_next(kSecondInstance, 2);
  check(setup.prefill_tokens(kSecondInstance) == 80 &&
            !setup.known().is_busy(kSecondInstance, Time{0}),
        "one prompt less");
}

void each_live_worker_has_an_event_of_its_own() {
  LoadEventsSetup setup(two_workers(signals::Live{}));
  setup.events->sent(0, RequestId{0}, kSecondInstance);
  setup.events->sent(0, RequestId{1}, kFirstInstance);
  setup.handle_next(kFirstInstance, 0);
  setup.handle_next(kSecondInstance, 0);
  check(setup.prefill_tokens(kFirstInstance) == 80 && setup.prefill_tokens(kSecondInstance) == 80,
        "one each");
}

void a_request_that_ends_is_news() {
  LoadEventsSetup setup(two_workers(signals::Live{}));
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  setup.handle_next(kFirstInstance, 0);
  set_clock(setup.context, 3);
  setup.context.states.outcome[0] = Outcome::cancelled;
  setup.events->finished(0, RequestId{0}, kFirstInstance);
  setup.handle_next(kFirstInstance, 3);
  check(setup.prefill_tokens(kFirstInstance) == 0, "its prompt is gone without a token");
}

void what_workers_emit_is_read_where_it_counts() {
  Simulation simulation = two_workers(signals::Live{});
  simulation.busy_monitor.track_output_blocks = true;
  simulation.gateway.replicas = 2;
  LoadEventsSetup setup(simulation);
  for (const std::size_t gateway : {0, 1}) {
    const RequestId id{gateway};
    setup.events->sent(gateway, id, kFirstInstance);
    setup.context.states.first_token[id.index()] = Time{0};
    setup.events->first_token(gateway, id, kFirstInstance);
  }
  setup.fleet[0].emits_at_reads = {35, 50};
  setup.fleet[0].states = &setup.context.states;
  setup.handle_next(kFirstInstance, 0);
  const auto blocks = [&](std::size_t gateway) {
    return setup.known(gateway).ranks(kFirstInstance)[0].active_decode_blocks;
  };
  check(blocks(0) == 8 + 3, "8 blocks of the prompt and 35 tokens, of which 10 fill a block");
  check(blocks(1) == 8 + 5, "50 tokens of the request of the other gateway");
  setup.events->finished(0, RequestId{0}, kFirstInstance);
  setup.handle_next(kFirstInstance, 0);
  check(blocks(0) == 0 && blocks(1) == 8 + 5, "each gateway counts what it has sent");
}

void a_new_gateway_misses_what_is_under_way() {
  LoadEventsSetup setup(two_workers(signals::Scraped{.period_s = 1, .delay_s = 0.5}));
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  check(setup.handle_next(kFirstInstance, 0), "a scrape");
  setup.events->add_gateway(setup.simulation.busy_monitor);
  check(setup.handle_next(kSecondInstance, 0), "a scrape of the other worker");
  setup.handle_next(kFirstInstance, 0.5);
  check(setup.prefill_tokens(kFirstInstance) == 80, "known to the first");
  check(setup.known(1).ranks(kFirstInstance).empty(), "not to the new one");
  setup.handle_next(kSecondInstance, 0.5);
  check(setup.prefill_tokens(kSecondInstance, 1) == 0, "what was measured since then arrives");
}

// A worker of two ranks, the second of which has both requests.
void each_rank_is_read() {
  Simulation simulation = two_workers(signals::Live{});
  simulation.instances = {{.data_parallel_size = 2}};
  Context context(simulation, 1);
  context.states.resize(2);
  context.states.rank = {1, 1};
  auto ranks = std::make_unique<instance::Ranks>();
  for (const std::int64_t free_blocks : {30, 60}) {
    auto rank = std::make_unique<FakeInstance>();
    rank->reported.free_blocks = free_blocks;
    ranks->add(std::move(rank));
  }
  std::vector<std::unique_ptr<instance::Instance>> fleet;
  fleet.push_back(std::move(ranks));
  LoadEvents events(context, fleet, nullptr);
  events.sent(0, RequestId{0}, kFirstInstance);
  events.sent(0, RequestId{1}, kFirstInstance);
  events.handle(take(context));
  const auto known = events.known_to(0)->ranks(kFirstInstance);
  check(known.size() == 2, "two ranks");
  check(known[0].kv_used_blocks == 70 && known[1].kv_used_blocks == 40, "each by itself");
  check(known[0].active_prefill_tokens == 0 && known[1].active_prefill_tokens == 160,
        "what was sent to each");
  check(!events.known_to(0)->is_busy(kFirstInstance, Time{0}), "one busy rank of two");
}

// ---- scraped -------------------------------------------------------------------------------

void scrapes_arrive_after_their_delay() {
  LoadEventsSetup setup(two_workers(signals::Scraped{.period_s = 1, .delay_s = 0.3}));
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  setup.events->sent(0, RequestId{1}, kFirstInstance);
  check(setup.handle_next(kFirstInstance, 0) && setup.handle_next(kSecondInstance, 0),
        "both are scraped");
  check(setup.reads() == 2 && setup.known().ranks(kFirstInstance).empty(),
        "the readings are on their way");
  check(!setup.handle_next(kFirstInstance, 0.3) && !setup.handle_next(kSecondInstance, 0.3),
        "they arrive");
  check(setup.known().is_busy(kFirstInstance, Time{0}) &&
            !setup.known().is_busy(kSecondInstance, Time{0}),
        "160 > 100, 0");
  check(!has_events(setup.context), "no scrape follows by itself");
  setup.events->schedule_scrape(kSecondInstance);
  check(setup.handle_next(kSecondInstance, 1), "the next one");
}

void scrapes_without_delay_arrive_at_once() {
  LoadEventsSetup setup(two_workers(signals::Scraped{.period_s = 1, .phase_s = 0.5}));
  check(setup.handle_next(kFirstInstance, 0.5) && setup.handle_next(kSecondInstance, 0.5),
        "the first scrapes");
  check(!setup.known().ranks(kFirstInstance).empty() && !has_events(setup.context),
        "no further event");
}

// The readings of 0 s and 1 s arrive at 1.5 s and 2.5 s.
void readings_arrive_in_the_order_of_their_scrapes() {
  LoadEventsSetup setup(two_workers(signals::Scraped{.period_s = 1, .delay_s = 1.5}));
  setup.fleet[0].reported.free_blocks = 90;
  setup.handle_next(kFirstInstance, 0);
  setup.handle_next(kSecondInstance, 0);
  setup.events->schedule_scrape(kFirstInstance);
  setup.fleet[0].reported.free_blocks = 20;
  setup.handle_next(kFirstInstance, 1);
  setup.handle_next(kFirstInstance, 1.5);
  check(setup.used_blocks(kFirstInstance) == 10, "as it was at 0 s");
  setup.handle_next(kSecondInstance, 1.5);
  setup.handle_next(kFirstInstance, 2.5);
  check(setup.used_blocks(kFirstInstance) == 80, "as it was at 1 s");
}

void a_scraped_worker_is_not_read_for_news() {
  LoadEventsSetup setup(two_workers(signals::Scraped{.period_s = 1, .phase_s = 5}));
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  setup.events->first_token(0, RequestId{0}, kFirstInstance);
  setup.handle_next(kFirstInstance, 5);
  setup.handle_next(kSecondInstance, 5);
  check(!has_events(setup.context), "scrapes only");
}

void lost_scrapes_read_nothing() {
  LoadEventsSetup setup(two_workers(signals::Scraped{.period_s = 1, .loss_probability = 0.5}));
  setup.handle_next(kFirstInstance, 0);
  setup.handle_next(kSecondInstance, 0);
  const int before = setup.fleet[0].reads;
  int expected = 0;
  for (int k = 1; k <= 20; ++k) {
    expected += !setup.scrapes->is_lost(kFirstInstance, k);
    setup.events->schedule_scrape(kFirstInstance);
    check(setup.handle_next(kFirstInstance, k), "a scrape, lost or not");
    check(setup.fleet[0].reads - before == expected, "what was not lost");
  }
  check(expected > 0 && expected < 20, "some were lost");
}

// ---- on_read -------------------------------------------------------------------------------

void readings_are_renewed_by_age() {
  LoadEventsSetup setup(two_workers(signals::OnRead{.period_s = 0.5}));
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  check(!has_events(setup.context), "changes of workers make no events");
  setup.events->renew();
  set_clock(setup.context, 0.4);
  setup.events->renew();
  check(setup.reads() == 0 && setup.known().ranks(kFirstInstance).empty(), "too early");
  set_clock(setup.context, 0.5);
  setup.events->renew();
  setup.events->renew();
  check(setup.reads() == 2, "each once");
  check(setup.prefill_tokens(kFirstInstance) == 80 && setup.prefill_tokens(kSecondInstance) == 0,
        "at once");
  set_clock(setup.context, 0.9);
  setup.events->renew();
  check(setup.reads() == 2, "not old enough");
  set_clock(setup.context, 7);
  setup.events->renew();
  check(setup.reads() == 4, "old enough, however old");
  set_clock(setup.context, 7.4);
  setup.events->renew();
  check(setup.reads() == 4, "the age counts from the last reading");
}

void live_workers_are_not_read_for_decisions() {
  LoadEventsSetup setup(two_workers(signals::Live{}));
  set_clock(setup.context, 9);
  setup.events->renew();
  check(setup.reads() == 0, "only for changes");
}

// ---- several gateways ----------------------------------------------------------------------

void each_gateway_counts_what_it_has_sent() {
  LoadEventsSetup setup(two_workers(signals::Live{}, 2));
  setup.fleet[0].reported.free_blocks = 25;
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  setup.events->sent(0, RequestId{1}, kFirstInstance);
  setup.handle_next(kFirstInstance, 0);
  check(setup.prefill_tokens(kFirstInstance, 0) == 160 &&
            setup.prefill_tokens(kFirstInstance, 1) == 0,
        "its own requests");
  check(setup.known(0).is_busy(kFirstInstance, Time{0}) &&
            !setup.known(1).is_busy(kFirstInstance, Time{0}),
        "busy for one of them");
  check(setup.known(0).ranks(kFirstInstance)[0].kv_used_blocks == 75 &&
            setup.known(1).ranks(kFirstInstance)[0].kv_used_blocks == 75,
        "what the worker reports reaches both");
}

// ---- refusals ------------------------------------------------------------------------------

void a_worker_that_turns_requests_away_is_overloaded() {
  LoadEventsSetup setup(two_workers(signals::Live{}, 2));
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  setup.handle_next(kFirstInstance, 0);
  check(!setup.known().is_busy(kFirstInstance, Time{0}), "80 tokens are not too many");
  setup.context.states.outcome[0] = Outcome::rejected;
  setup.context.states.reason[0] = {Stage::ingress, 1};
  setup.events->finished(0, RequestId{0}, kFirstInstance);
  check(setup.known(0).is_busy(kFirstInstance, Time{0}) && !has_events(setup.context),
        "at once, unread");
  check(!setup.known(1).is_busy(kFirstInstance, Time{0}), "the other gateway does not know");
  setup.events->sent(0, RequestId{1}, kFirstInstance);
  setup.handle_next(kFirstInstance, 0);
  check(!setup.known(0).is_busy(kFirstInstance, Time{0}), "until the next load event");
}

// The first reason of a worker: the request could never finish.
void a_request_that_cannot_be_served_is_no_sign_of_overload() {
  LoadEventsSetup setup(two_workers(signals::Live{}));
  setup.events->sent(0, RequestId{0}, kFirstInstance);
  setup.handle_next(kFirstInstance, 0);
  setup.context.states.outcome[0] = Outcome::rejected;
  setup.context.states.reason[0] = {Stage::ingress, 0};
  setup.events->finished(0, RequestId{0}, kFirstInstance);
  check(!setup.known().is_busy(kFirstInstance, Time{0}), "not overloaded");
  setup.handle_next(kFirstInstance, 0);
  check(setup.prefill_tokens(kFirstInstance) == 0, "but it has left");
}

}  // namespace

CASES(nothing_is_read_without_need, an_ingress_is_a_need, live_workers_are_read_once_an_instant,
      each_live_worker_has_an_event_of_its_own, a_request_that_ends_is_news,
      what_workers_emit_is_read_where_it_counts, a_new_gateway_misses_what_is_under_way,
      each_rank_is_read, scrapes_arrive_after_their_delay, scrapes_without_delay_arrive_at_once,
      readings_arrive_in_the_order_of_their_scrapes, a_scraped_worker_is_not_read_for_news,
      lost_scrapes_read_nothing, readings_are_renewed_by_age,
      live_workers_are_not_read_for_decisions, each_gateway_counts_what_it_has_sent,
      a_worker_that_turns_requests_away_is_overloaded,
      a_request_that_cannot_be_served_is_no_sign_of_overload);
