// Arrivals, retries and time-outs without a gateway or an engine: the test scripts the end of each
// attempt.
#include "cluster/clients.h"

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "actors.h"
#include "check.h"
#include "gateway/queue/queue.h"

using namespace spillway;
using cluster::Clients;
using cluster::Context;
using cluster::Simulation;
using gateway::Queue;
using sim::Event;
using sim::from_seconds;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Cause;
using workload::Jitter;
using workload::Outcome;
using workload::ReasonCode;
using workload::Stage;

namespace {

constexpr ReasonCode kQueueFull{Stage::queue, Queue::kFull};

struct ClientsSetup {
  explicit ClientsSetup(Simulation of) : simulation(std::move(of)), context(simulation, 1) {
    clients.start();
  }

  Event next() { return take(context); }
  /// The next event is an arrival; its request reaches the gateway.
  RequestId arrive() {
    const RequestId id = clients.arrive(next());
    clients.submitted(id);
    return id;
  }
  /// The attempt fails now. True: its client retries.
  bool fail(RequestId id, ReasonCode reason = kQueueFull, Outcome outcome = Outcome::rejected) {
    context.states.outcome[id.index()] = outcome;
    context.states.reason[id.index()] = reason;
    return clients.left(id);
  }
  bool complete(RequestId id) {
    context.states.outcome[id.index()] = Outcome::completed;
    return clients.left(id);
  }

  Simulation simulation;
  Context context;
  Clients clients{context};
};

workload::Retry retry(double backoff_s, std::int64_t max_attempts) {
  return {.max_attempts = max_attempts, .backoff_s = backoff_s, .jitter = Jitter::none};
}

void the_source_sends_one_request_at_a_time() {
  ClientsSetup setup(simulation_of({{.arrival_s = 1}, {.arrival_s = 1}, {.arrival_s = 4}}));
  const Event first = setup.next();
  check(is(first, Phase::source_arrival, 1), "the first one");
  check(!has_events(setup.context), "the second one is not scheduled yet");
  check(setup.clients.arrive(first) == RequestId{0}, "ids count from 0");
  check(setup.context.record->offered == 1, "one has been offered");
  check(setup.arrive() == RequestId{1} && setup.context.now == from_seconds(1), "the second one");
  check(setup.clients.has_pending(), "the third one is known");
  check(setup.arrive() == RequestId{2} && setup.context.now == from_seconds(4), "the third one");
  check(!setup.clients.has_pending() && !has_events(setup.context), "that is all");
  check(setup.clients.last_arrival() == from_seconds(4), "the last one");
}

void passive_clients_never_react() {
  ClientsSetup setup(simulation_of({{}}));
  const RequestId id = setup.arrive();
  check(!has_events(setup.context), "no timer");
  set_clock(setup.context, 1e6);
  check(!setup.clients.has_timed_out(id), "they wait indefinitely");
  check(!setup.fail(id) && setup.clients.max_attempts() == 1, "they do not retry");
  check(!has_events(setup.context), "nothing follows");
}

// Waits of 1 s and 2 s.
void a_client_retries_until_it_has_made_all_attempts() {
  Simulation simulation = simulation_of({{.arrival_s = 1}});
  simulation.reaction.retries = {retry(1, 3)};
  ClientsSetup setup(simulation);
  check(setup.clients.max_attempts() == 3, "three at most");
  const RequestId id = setup.arrive();
  setup.context.states.admitted[0] = from_seconds(1);
  check(setup.fail(id), "it retries");
  check(setup.clients.has_pending(), "an arrival is expected");
  const Event second = setup.next();
  check(is(second, Phase::retry_arrival, 2), "a second later");
  check(setup.clients.arrive(second) == id, "the same request");
  check(setup.context.states.attempts[0] == 2, "its second attempt");
  check(!sim::is_set(setup.context.states.admitted[0]) &&
            setup.context.states.outcome[0] == Outcome::in_transit,
        "without the stamps of the first one");
  check(setup.context.requests.arrival(id) == from_seconds(2), "when it arrived again");
  check(setup.context.requests.first_arrival(id) == from_seconds(1), "when it was first sent");
  check(setup.fail(id), "it retries again");
  check(is(setup.next(), Phase::retry_arrival, 4), "after twice the wait");
  check(setup.clients.last_arrival() == from_seconds(1), "a retry is no arrival of the workload");
  check(setup.context.record->offered == 1, "nor is it another request");
}

void the_last_attempt_is_final() {
  Simulation simulation = simulation_of({{}});
  simulation.reaction.retries = {retry(1, 2)};
  ClientsSetup setup(simulation);
  setup.arrive();
  check(setup.fail(RequestId{0}), "one more");
  setup.arrive();
  check(!setup.fail(RequestId{0}) && !setup.clients.has_pending(), "none");
  check(!has_events(setup.context), "nothing follows");
}

void a_completed_request_is_not_retried() {
  Simulation simulation = simulation_of({{}});
  simulation.reaction.retries = {retry(1, 5)};
  ClientsSetup setup(simulation);
  const RequestId id = setup.arrive();
  check(!setup.complete(id) && !setup.clients.has_pending(), "it is done");
}

// The budget starts with one retry, which is also its maximum; two requests earn one.
void a_budget_pays_for_retries() {
  Simulation simulation = simulation_of({{}, {.arrival_s = 1}, {.arrival_s = 2}});
  simulation.reaction.retries = {retry(10, 9)};
  simulation.reaction.retries[0].budget_ratio = 0.5;
  simulation.reaction.retries[0].budget_burst = 1;
  ClientsSetup setup(simulation);
  check(setup.fail(setup.arrive()), "the first one takes what was there: 0 is left");
  check(!setup.fail(setup.arrive()), "0.5 is not enough");
  check(setup.fail(setup.arrive()), "1 is: 0 is left");
  const RequestId again = setup.arrive();
  check(again == RequestId{0} && setup.context.now == from_seconds(10), "the first one again");
  check(!setup.fail(again), "a retry earns nothing");
}

void each_tenant_has_a_budget_of_its_own() {
  workload::Retry rule = retry(10, 9);
  rule.budget_ratio = 0;
  rule.budget_burst = 1;
  Simulation simulation =
      simulation_of({{.tenant = 0}, {.tenant = 0}, {.tenant = 1}}, {{.name = "a"}, {.name = "b"}});
  simulation.reaction.retries = {rule};
  ClientsSetup setup(simulation);
  check(setup.fail(setup.arrive()) && !setup.fail(setup.arrive()), "one retry of the first");
  check(setup.fail(setup.arrive()), "the second has one as well");
}

// 1 s after a full queue, 5 s after a time-out of the client, no retry after saturation.
void the_cause_decides_which_rule_applies() {
  Simulation simulation = simulation_of({{}, {}, {}, {}});
  simulation.reaction.retries = {retry(1, 3), retry(5, 3)};
  simulation.reaction.retries[0].on = {Cause::queue_full};
  simulation.reaction.retries[1].on = {Cause::timeout};
  ClientsSetup setup(simulation);
  const RequestId full = setup.arrive();
  const RequestId late = setup.arrive();
  const RequestId evicted = setup.arrive();
  const RequestId expired = setup.arrive();
  check(setup.fail(late, {}, Outcome::cancelled), "withdrawn");
  check(setup.context.states.reason[late.index()].stage == Stage::client, "by its client");
  check(setup.fail(full), "refused by a full queue");
  check(!setup.fail(evicted, {Stage::queue, Queue::kInFlight}, Outcome::evicted), "saturated");
  check(!setup.fail(expired, {Stage::queue, Queue::kTimeout}, Outcome::expired), "ttl_expired");
  check(is(setup.next(), Phase::retry_arrival, 1, full.value), "soon");
  check(is(setup.next(), Phase::retry_arrival, 5, late.value), "later");
}

// The first reason of a worker: the request could never finish.
void what_cannot_be_served_is_not_retried() {
  Simulation simulation = simulation_of({{}});
  simulation.reaction.retries = {retry(1, 3)};
  ClientsSetup setup(simulation);
  check(!setup.fail(setup.arrive(), {Stage::ingress, 0}), "after any cause, but not after this");
}

// A deadline of 10 s with waits of 4 s and 8 s, which would end at 12 s.
void a_deadline_covers_all_attempts() {
  Simulation simulation = simulation_of({{}});
  simulation.reaction.deadline_s = 10;
  simulation.reaction.retries = {retry(4, 9)};
  ClientsSetup setup(simulation);
  const RequestId id = setup.arrive();
  check(setup.fail(id), "there is time for a wait of 4 s");
  check(setup.arrive() == id && setup.context.now == from_seconds(4), "the second attempt");
  check(!setup.fail(id), "6 s are left: it does not wait for 8 s");
  check(is(setup.next(), Phase::client_reaction, 10), "the timer of the first attempt");
  check(is(setup.next(), Phase::client_reaction, 10), "that of the second one is as late");
  check(setup.clients.has_timed_out(id), "it is over");
}

// The first token within 2 s of the arrival, the last within 5 s.
void patience_ends_with_time_outs() {
  Simulation simulation = simulation_of({{.arrival_s = 1}});
  simulation.reaction.first_token_timeout_s = 2;
  simulation.reaction.timeout_s = 5;
  ClientsSetup setup(simulation);
  const RequestId id = setup.arrive();
  check(!setup.clients.has_timed_out(id), "it has just arrived");
  const Event first = setup.next();
  check(is(first, Phase::client_reaction, 3), "the first timer");
  check(setup.clients.timer_of(first) == id, "of the request");
  check(setup.clients.has_timed_out(id), "no token has come");
  setup.context.states.first_token[0] = from_seconds(2.5);
  check(!setup.clients.has_timed_out(id), "one has");
  check(is(setup.next(), Phase::client_reaction, 6), "the second timer");
  check(setup.clients.has_timed_out(id), "it is not complete");
  check(!has_events(setup.context), "no other timer");
}

void a_retry_waits_anew() {
  Simulation simulation = simulation_of({{}});
  simulation.reaction.timeout_s = 5;
  simulation.reaction.retries = {retry(1, 2)};
  ClientsSetup setup(simulation);
  const RequestId id = setup.arrive();
  setup.fail(id);
  setup.arrive();
  check(is(setup.next(), Phase::client_reaction, 5), "the timer of the first attempt");
  check(!setup.clients.has_timed_out(id), "the second one has begun at 1 s");
  check(is(setup.next(), Phase::client_reaction, 6), "its own timer");
  check(setup.clients.has_timed_out(id), "it has waited for 5 s");
}

void tenants_may_have_reactions_of_their_own() {
  Simulation simulation =
      simulation_of({{.tenant = 0}, {.tenant = 1}},
                    {{.name = "a"}, {.name = "b", .reaction = workload::Reaction{}}});
  simulation.tenants[1].reaction->timeout_s = 3;
  simulation.tenants[1].reaction->retries = {retry(1, 7)};
  ClientsSetup setup(simulation);
  const RequestId of_a = setup.arrive();
  const RequestId of_b = setup.arrive();
  check(setup.clients.max_attempts() == 7, "the most of any tenant");
  check(!setup.fail(of_a), "passive");
  check(is(setup.next(), Phase::client_reaction, 3, of_b.value), "the only timer");
  check(setup.fail(of_b), "the second retries");
}

// The ids of ended requests are reused.
void a_timer_does_not_find_the_next_request_of_its_id() {
  Simulation simulation = simulation_of({{}, {.arrival_s = 2}});
  simulation.metrics.streaming = true;
  simulation.reaction.timeout_s = 5;
  ClientsSetup setup(simulation);
  const RequestId first = setup.arrive();
  set_clock(setup.context, 1);
  check(!setup.complete(first), "it is over");
  setup.context.requests.retire(first);
  const workload::RequestHandle over{first, 0};
  check(!setup.context.requests.find(over), "its handle finds nothing");
  const RequestId second = setup.arrive();
  check(second == first && setup.context.requests.row(second) == 1, "another request, the same id");
  const Event stale = setup.next();
  check(is(stale, Phase::client_reaction, 5, first.value), "the timer of the first one");
  check(!setup.clients.timer_of(stale), "is not one of the second");
  const Event own = setup.next();
  check(is(own, Phase::client_reaction, 7, second.value), "its own timer");
  check(setup.clients.timer_of(own) == second, "finds it");
}

// ---- closed-loop users ---------------------------------------------------------------------

workload::Client users(std::int64_t number, double think_time_s) {
  workload::Client client;
  client.name = "chat";
  client.arrivals = workload::ClosedLoop{
      .users = number, .think_time_s = think_time_s, .think_time = workload::ThinkTime::constant};
  return client;
}

Simulation simulation_of_clients(std::vector<workload::Client> clients) {
  workload::Synthetic synthetic;
  synthetic.clients = std::move(clients);
  Simulation simulation;
  simulation.workload = synthetic;
  return simulation;
}

// Three requests of two users with a think time of 3 s.
void users_think_before_they_ask_again() {
  workload::Client client = users(2, 3);
  client.num_requests = 3;
  ClientsSetup setup(simulation_of_clients({client}));
  check(setup.clients.num_users() == 2 && setup.clients.has_pending(), "two users");
  const Event first = setup.next();
  check(is(first, Phase::user_arrival, 3, 0), "the first one has thought");
  const RequestId of_first = setup.clients.arrive(first);
  const Event second = setup.next();
  check(is(second, Phase::user_arrival, 3, 1), "so has the second one");
  const RequestId of_second = setup.clients.arrive(second);
  check(of_first == RequestId{0} && of_second == RequestId{1}, "requests in order of arrival");
  check(!has_events(setup.context) && !setup.clients.has_pending(), "both wait for an answer");
  check(setup.clients.name_of_client(of_second) == "user 1 (client 'chat')", "in words");
  set_clock(setup.context, 4);
  check(!setup.complete(of_second), "answered");
  check(setup.clients.has_pending(), "the user thinks");
  check(is(setup.next(), Phase::user_arrival, 7, 1), "3 s after the answer");
  set_clock(setup.context, 8);
  check(!setup.complete(of_first) && !has_events(setup.context), "three were all");
}

// Without a think time a user would send requests at the same instant without end.
void a_refusal_takes_time() {
  for (const double turnaround_s : {0.0, 0.25}) {
    workload::Client client = users(1, 0);
    std::get<workload::ClosedLoop>(client.arrivals).refusal_turnaround_s = turnaround_s;
    client.num_requests = 9;
    Simulation simulation = simulation_of_clients({client});
    simulation.quantum_ns = 1000;
    ClientsSetup setup(simulation);
    const RequestId first = setup.arrive();
    check(setup.context.now == Time{0}, "the user asks at once");
    set_clock(setup.context, 2);
    check(!setup.fail(first), "the request is over");
    const Time next = setup.next().time();
    check(next == from_seconds(turnaround_s == 0 ? 2.000001 : 2.25), "a quantum later, at least");
  }
}

void a_user_asks_again_when_no_retry_is_left() {
  workload::Client client = users(1, 3);
  client.num_requests = 9;
  Simulation simulation = simulation_of_clients({client});
  simulation.reaction.retries = {retry(1, 2)};
  ClientsSetup setup(simulation);
  const RequestId first = setup.arrive();
  check(setup.fail(first), "it retries");
  check(setup.arrive() == first && setup.context.now == from_seconds(4), "the same request");
  check(!has_events(setup.context), "the user waits meanwhile");
  check(!setup.fail(first), "it is over");
  check(is(setup.next(), Phase::user_arrival, 7), "the next request of the user");
}

// A request per second beside a user with a think time of 10 s.
void requests_of_the_source_belong_to_no_user() {
  workload::Client steady;
  steady.name = "steady";
  steady.arrivals = workload::Constant{};
  steady.requests_per_s = 1;
  steady.num_requests = 1;
  workload::Client user = users(1, 10);
  user.num_requests = 2;
  ClientsSetup setup(simulation_of_clients({user, steady}));
  const Event event = setup.next();
  check(is(event, Phase::source_arrival, 1), "by the clock");
  const RequestId id = setup.clients.arrive(event);
  check(setup.clients.name_of_client(id) == "request 0", "in words");
  check(!setup.complete(id), "over");
  check(is(setup.next(), Phase::user_arrival, 10), "the user has been thinking since the start");
}

}  // namespace

CASES(the_source_sends_one_request_at_a_time, passive_clients_never_react,
      a_client_retries_until_it_has_made_all_attempts, the_last_attempt_is_final,
      a_completed_request_is_not_retried, a_budget_pays_for_retries,
      each_tenant_has_a_budget_of_its_own, the_cause_decides_which_rule_applies,
      what_cannot_be_served_is_not_retried, a_deadline_covers_all_attempts,
      patience_ends_with_time_outs, a_retry_waits_anew, tenants_may_have_reactions_of_their_own,
      a_timer_does_not_find_the_next_request_of_its_id, users_think_before_they_ask_again,
      a_refusal_takes_time, a_user_asks_again_when_no_retry_is_left,
      requests_of_the_source_belong_to_no_user);
