// The schedule of drains without a gateway: the test scripts how many requests wait after a drain
// and whether an attempt may dispatch one.
#include "cluster/drain_schedule.h"

#include <cstdint>

#include "actors.h"
#include "check.h"

using namespace spillway;
using cluster::Context;
using cluster::DrainSchedule;
using cluster::Simulation;
using sim::Event;
using sim::from_seconds;
using sim::Phase;
using sim::Time;

namespace {

constexpr std::uint32_t kGateway = 3;

struct DrainSetup {
  explicit DrainSetup(const gateway::Gateway& config,
                      const signals::Signals& signals = signals::Live{})
      : simulation(simulation_of({})), context(configure(config, signals), 1) {}

  const Simulation& configure(const gateway::Gateway& config, const signals::Signals& signals) {
    simulation.gateway = config;
    simulation.signals = signals;
    return simulation;
  }
  /// The drains of this instant are over.
  void begin_arrivals() { context.begin({context.now, Phase::source_arrival, 0, 0}); }
  void something_is_due_at(double at_s) {
    context.events.push({from_seconds(at_s), Phase::source_arrival, 0, 0});
  }
  /// The next event is an attempt at `at_s`, with `queued` waiting requests. True: drain.
  bool attempt(double at_s, std::int64_t queued) {
    const Event event = take(context);
    check(is(event, Phase::dispatch_attempt, at_s, kGateway), "an attempt at that instant");
    return drains.is_due(event.phase(), queued);
  }

  Simulation simulation;
  Context context;
  DrainSchedule drains{context, kGateway, 0};
};

gateway::Gateway one_per_second() {
  gateway::Gateway config;
  config.dispatch = gateway::Dispatch::one_per_attempt;
  config.attempt_period_s = 1;
  return config;
}

gateway::Gateway held_by_saturation() {
  gateway::Gateway config;
  config.limit = {gateway::Saturation{}};
  config.attempt_period_s = 1;
  return config;
}

// ---- on request ----------------------------------------------------------------------------

void a_drain_that_would_be_next_is_made_at_once() {
  DrainSetup setup(gateway::Gateway{});
  set_clock(setup.context, 1);
  setup.something_is_due_at(2);
  check(setup.drains.request(Time{0}), "nothing else is due at this instant");
  check(!setup.drains.is_pending(), "nothing was scheduled");
}

void a_drain_waits_for_what_is_due() {
  DrainSetup setup(gateway::Gateway{});
  setup.something_is_due_at(0);
  check(!setup.drains.request(Time{0}), "not at once");
  check(!setup.drains.request(Time{0}), "nor for the next request");
  check(setup.drains.is_pending(), "it is scheduled");
  const Event event = take(setup.context);
  check(is(event, Phase::queue_drain, 0, kGateway), "it precedes arrivals");
  check(setup.drains.is_due(event.phase(), 0) && !setup.drains.is_pending(), "once");
  check(take(setup.context).phase() == Phase::source_arrival, "what else was due");
  check(!has_events(setup.context), "one drain for both requests");
}

void the_first_request_starts_the_latency() {
  DrainSetup setup(gateway::Gateway{});
  set_clock(setup.context, 1);
  check(!setup.drains.request(from_seconds(2)), "two seconds later");
  set_clock(setup.context, 2);
  check(!setup.drains.wake(from_seconds(2)), "by then something else has happened");
  const Event event = take(setup.context);
  check(is(event, Phase::queue_drain, 3, kGateway), "2 s after the first of them");
  check(setup.drains.is_due(event.phase(), 1) && !has_events(setup.context), "for both");
  check(!setup.drains.request(from_seconds(2)), "and the next one");
  check(is(take(setup.context), Phase::queue_drain, 5, kGateway), "has a latency of its own");
}

void without_a_clock_only_requests_lead_to_drains() {
  DrainSetup setup(gateway::Gateway{});
  setup.drains.drained(5, true);
  check(!has_events(setup.context) && !setup.drains.is_pending(), "no attempts by the clock");
}

// ---- one request per attempt ---------------------------------------------------------------

// Three requests join at 5 s: one is dispatched immediately, the others at 6 s and 7 s.
void a_series_begins_a_period_after_requests_were_left_waiting() {
  DrainSetup setup(one_per_second());
  set_clock(setup.context, 5);
  check(setup.drains.request(Time{0}), "an attempt for the one that joins");
  setup.drains.drained(2, true);
  check(setup.drains.is_pending(), "an attempt is due");
  check(setup.attempt(6, 2), "a period later");
  setup.drains.drained(1, true);
  check(setup.attempt(7, 1), "a period after that");
  setup.drains.drained(0, true);
  check(!setup.drains.is_pending() && !has_events(setup.context), "none is left");
  set_clock(setup.context, 7.5);
  setup.drains.drained(1, true);
  check(setup.attempt(8.5, 1), "another series has a grid of its own");
}

void a_series_ends_with_the_first_attempt_that_finds_none() {
  DrainSetup setup(one_per_second());
  setup.drains.drained(1, true);
  check(!setup.attempt(1, 0), "the request has gone: no drain");
  check(!has_events(setup.context) && !setup.drains.is_pending(), "no further attempt");
}

// The queue is empty for a while, but at no attempt.
void a_series_does_not_see_what_happens_between_attempts() {
  DrainSetup setup(one_per_second());
  setup.drains.drained(1, true);
  set_clock(setup.context, 0.3);
  setup.drains.drained(0, true);
  set_clock(setup.context, 0.6);
  setup.drains.drained(1, true);
  check(setup.attempt(1, 1), "on the grid of the first");
  check(!has_events(setup.context), "the only attempt");
}

void attempts_that_cannot_succeed_are_left_out() {
  DrainSetup setup(one_per_second());
  set_clock(setup.context, 5);
  setup.drains.drained(2, false);
  check(!has_events(setup.context) && !setup.drains.is_pending(), "no attempt");
  set_clock(setup.context, 7.3);
  check(!setup.drains.wake(Time{0}), "a permit has returned: not at once");
  check(setup.attempt(8, 2), "at the next instant of 6, 7, 8 s");
  setup.drains.drained(1, true);
  check(setup.attempt(9, 1), "and on");
}

void a_series_resumes_before_its_first_attempt() {
  DrainSetup setup(one_per_second());
  setup.drains.drained(1, false);
  set_clock(setup.context, 0.4);
  check(!setup.drains.wake(Time{0}) && !setup.drains.wake(Time{0}), "twice before the first");
  check(setup.attempt(1, 1), "which is made");
  check(!has_events(setup.context), "once");
}

void a_drain_that_leaves_requests_which_may_go_resumes_a_series() {
  DrainSetup setup(one_per_second());
  setup.drains.drained(1, false);
  set_clock(setup.context, 2.5);
  setup.drains.drained(2, true);
  check(setup.attempt(3, 2), "on the grid of the series");
}

// At exactly 8 s, an instant of the series. Permits are released before the drains of an instant.
void an_attempt_of_this_instant_sees_what_precedes_the_drains() {
  DrainSetup setup(one_per_second());
  set_clock(setup.context, 5);
  setup.drains.drained(1, false);
  setup.context.begin({from_seconds(8), Phase::permit_release, 0, 0});
  check(!setup.drains.wake(Time{0}), "a permit");
  check(setup.attempt(8, 1), "at the same instant");
}

// Requests arrive after the drains.
void an_attempt_of_this_instant_does_not_see_what_follows_the_drains() {
  DrainSetup setup(one_per_second());
  set_clock(setup.context, 5);
  setup.drains.drained(1, false);
  set_clock(setup.context, 8);
  setup.begin_arrivals();
  check(!setup.drains.wake(Time{0}), "a permit");
  check(setup.attempt(9, 1), "a period later");
}

// The drains of another instant are in the past.
void drains_that_were_over_earlier_do_not_delay_an_attempt() {
  DrainSetup setup(one_per_second());
  set_clock(setup.context, 5);
  setup.drains.drained(1, false);
  set_clock(setup.context, 7);
  setup.begin_arrivals();
  set_clock(setup.context, 8);
  check(!setup.drains.wake(Time{0}), "a permit");
  check(setup.attempt(8, 1), "at once");
}

void nothing_wakes_a_gateway_without_a_series() {
  DrainSetup setup(one_per_second());
  check(!setup.drains.wake(Time{0}) && !has_events(setup.context), "no request waits");
}

// ---- a limit that depends on metrics -------------------------------------------------------

void requests_that_saturation_holds_wake_it_again() {
  DrainSetup setup(held_by_saturation());
  setup.drains.drained(2, true);
  check(setup.drains.is_pending(), "an attempt is due");
  check(setup.attempt(1, 2), "a period later");
  setup.drains.drained(2, true);
  set_clock(setup.context, 1.2);
  setup.drains.drained(3, true);
  check(setup.attempt(2, 3), "as it was scheduled");
  check(!has_events(setup.context), "one at a time");
  setup.drains.drained(3, false);
  check(!has_events(setup.context), "no report is to come");
}

void a_poll_ends_with_the_queue() {
  DrainSetup setup(held_by_saturation());
  setup.drains.drained(1, true);
  check(setup.attempt(1, 0), "a drain in any case");
  setup.drains.drained(0, true);
  check(!has_events(setup.context), "no request waits");
}

// ---- metrics in transit --------------------------------------------------------------------

// After a change at 2 s, without requests in flight.
bool may_open_at(double at_s, const signals::Signals& signals) {
  DrainSetup setup(gateway::Gateway{}, signals);
  setup.context.last_change = from_seconds(2);
  set_clock(setup.context, at_s);
  return setup.drains.signals_may_open_gate();
}

void a_gate_may_open_until_everything_has_been_reported() {
  const signals::Live live;
  check(may_open_at(2, live) && !may_open_at(2.000000001, live), "at the instant of the change");
  const signals::OnRead on_read{.period_s = 0.3};
  check(may_open_at(2.3, on_read) && !may_open_at(2.300000001, on_read), "a period later");
  const signals::Scraped scraped{.period_s = 0.1, .delay_s = 0.5};
  check(may_open_at(12.5, scraped) && !may_open_at(12.500000001, scraped),
        "the delay and a hundred scrapes later");
}

void a_request_in_flight_may_open_a_gate_at_any_time() {
  DrainSetup setup(gateway::Gateway{});
  set_clock(setup.context, 100);
  check(!setup.drains.signals_may_open_gate(), "nothing changes");
  setup.context.num_in_flight = 1;
  check(setup.drains.signals_may_open_gate(), "its end will");
}

// ---- ticks ---------------------------------------------------------------------------------

void a_drain_for_a_tick_is_no_pending_work() {
  DrainSetup setup(gateway::Gateway{});
  check(!setup.drains.request(from_seconds(1)), "scheduled");
  setup.drains.attribute_to_tick(true);
  check(!setup.drains.is_pending(), "for a tick alone");
  check(!setup.drains.request(from_seconds(1)), "a request joins meanwhile");
  check(setup.drains.is_pending(), "the same drain is for the request, too");
}

void an_attempt_for_a_tick_is_no_pending_work() {
  DrainSetup setup(one_per_second());
  setup.drains.drained(1, false);
  check(!setup.drains.wake(Time{0}), "the tick has moved the limit");
  setup.drains.attribute_to_tick(true);
  check(!setup.drains.is_pending() && has_events(setup.context), "for the tick alone");
  check(setup.attempt(1, 2), "the attempt");
  setup.drains.drained(1, true);
  check(setup.drains.is_pending(), "the next one is for the request that waits");
}

}  // namespace

CASES(a_drain_that_would_be_next_is_made_at_once, a_drain_waits_for_what_is_due,
      the_first_request_starts_the_latency, without_a_clock_only_requests_lead_to_drains,
      a_series_begins_a_period_after_requests_were_left_waiting,
      a_series_ends_with_the_first_attempt_that_finds_none,
      a_series_does_not_see_what_happens_between_attempts,
      attempts_that_cannot_succeed_are_left_out, a_series_resumes_before_its_first_attempt,
      a_drain_that_leaves_requests_which_may_go_resumes_a_series,
      an_attempt_of_this_instant_sees_what_precedes_the_drains,
      an_attempt_of_this_instant_does_not_see_what_follows_the_drains,
      drains_that_were_over_earlier_do_not_delay_an_attempt,
      nothing_wakes_a_gateway_without_a_series, requests_that_saturation_holds_wake_it_again,
      a_poll_ends_with_the_queue, a_gate_may_open_until_everything_has_been_reported,
      a_request_in_flight_may_open_a_gate_at_any_time, a_drain_for_a_tick_is_no_pending_work,
      an_attempt_for_a_tick_is_no_pending_work);
