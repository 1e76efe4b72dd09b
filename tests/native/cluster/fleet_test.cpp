// The fleet of a run: which instances are ready when, and how requests enter and leave them.
#include "cluster/fleet.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "actors.h"
#include "check.h"
#include "signals/view.h"

using namespace spillway;
using cluster::Context;
using cluster::Simulation;
using sim::Event;
using sim::from_seconds;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using workload::Outcome;

namespace {

// Instances that take half a second to the first token and two to the last, at any concurrency.
Simulation simulation_with(std::int64_t instances, fleet::Fleet fleet = {}) {
  Simulation simulation = simulation_of({{}, {}});
  simulation.instances = {
      {.count = instances,
       .plant = instance::ProcessorSharing{.concurrency = {0}, .e2e_s = {2}, .ttft_s = {0.5}}}};
  simulation.fleet = std::move(fleet);
  return simulation;
}

struct FleetSetup final : workload::RequestListener {
  explicit FleetSetup(Simulation of) : simulation(std::move(of)), context(simulation, 1) {
    context.states.resize(2);
    in_flight.resize(cluster::num_instances(simulation));
    local.in_flight = in_flight;
  }
  void first_token(RequestId id) override { first_tokens.push_back(id); }
  void finished(RequestId id) override { ended.push_back(id); }
  void released(RequestId) override {}

  /// The next event is a change of the fleet at `at_s`. True: the number of ready instances has
  /// changed.
  bool resize_next(double at_s, std::int64_t queued = 0) {
    check(is(take(context), Phase::fleet_change, at_s), "a change is due");
    return resize(queued);
  }
  bool resize(std::int64_t queued = 0) {
    const bool has_changed = fleet.resize({.queued = queued});
    fleet.schedule_resize();
    return has_changed;
  }
  /// The target changes at `at_s`, which takes effect at once.
  bool set_target(std::int64_t instances, double at_s) {
    set_clock(context, at_s);
    fleet.set_targets({.fleet = instances});
    return resize_next(at_s);
  }
  void send(std::size_t request, InstanceId instance, std::size_t rank = 0) {
    fleet.send(RequestId{request}, {instance, rank});
  }
  /// The next event is an entry to an instance at `at_s`.
  std::optional<RequestId> enter_next(InstanceId instance, double at_s) {
    const Event event = take(context);
    check(event.phase() == Phase::ingress && event.time() == from_seconds(at_s) &&
              event.tie() == instance.value,
          "an entry there at that instant");
    return fleet.enter(event);
  }
  /// The next event is the end of a step at `at_s`.
  void end_step_next(double at_s) {
    const Event event = take(context);
    check(event.phase() == Phase::step_end && event.time() == from_seconds(at_s), "a step ends");
    fleet.end_step(event.subject());
  }
  /// With nothing in the queues of the gateways.
  bool awaits_instances() const { return !fleet.has_workers() && fleet.awaits_instances({}); }
  signals::View view() { return fleet.view(local); }
  Outcome outcome(std::size_t request) const { return context.states.outcome[request]; }

  Simulation simulation;
  Context context;
  std::vector<std::int32_t> in_flight;
  signals::LocalState local;
  std::vector<RequestId> first_tokens;
  std::vector<RequestId> ended;
  cluster::Fleet fleet{context, *this, false};
};

// ---- which instances are ready -------------------------------------------------------------

void a_constant_fleet_is_ready_from_the_start() {
  FleetSetup setup(simulation_with(3));
  check(setup.fleet.num_ready() == 3 && !setup.awaits_instances(), "all of it");
  check(!setup.resize() && !has_events(setup.context), "nothing changes");
  check(setup.view().size() == 3 && setup.view().has_workers(), "all are seen");
}

// The decision for two more is at 2 s, and they take 1.5 s; at 6 s one instance is left.
void a_target_counts_once_instances_are_ready() {
  FleetSetup setup(simulation_with(3, {.initial_instances = 1, .startup_s = 1.5}));
  check(!setup.resize() && setup.fleet.num_ready() == 1, "one at first");
  check(!setup.set_target(3, 2), "none is ready yet");
  check(setup.view().size() == 1, "nor seen");
  check(setup.resize_next(3.5), "ready");
  check(setup.fleet.num_ready() == 3 && setup.view().size() == 3, "all three");
  check(setup.set_target(1, 6), "two leave at once");
  check(setup.view().size() == 1 && setup.view().id(0) == kFirstInstance, "the last ones");
  check(!has_events(setup.context), "no change is to come");
}

void requests_may_wait_for_the_first_instance() {
  FleetSetup setup(
      simulation_with(2, {.initial_instances = 0, .target_instances = 1, .startup_s = 1}));
  check(setup.fleet.num_ready() == 0 && setup.awaits_instances(), "one is to come");
  check(!setup.view().has_workers() && setup.view().size() == 1, "decisions know that none is");
  check(!setup.resize() && setup.awaits_instances(), "it starts");
  check(setup.resize_next(1) && !setup.awaits_instances(), "it is ready");
  check(setup.view().has_workers(), "decisions know it");
  check(setup.set_target(0, 9), "it leaves");
  check(setup.fleet.num_ready() == 0 && !setup.awaits_instances(), "none is to come");
}

// The poll at 5 s, which was pending already, is scheduled again; from then on there is one chain.
void a_target_between_two_polls_leaves_one_chain_of_them() {
  FleetSetup setup(simulation_with(
      3, {.initial_instances = 1,
          .autoscaler = fleet::QueueScaler{.poll_s = 5, .min_instances = 1, .max_instances = 3},
          .startup_s = 4}));
  setup.resize();
  set_clock(setup.context, 2);
  setup.fleet.set_targets({.fleet = 2});
  setup.fleet.set_targets({.fleet = 3});
  check(!setup.resize_next(2), "both targets");
  check(!setup.resize_next(5) && !setup.resize_next(5), "a poll");
  check(setup.resize_next(6), "ready");
  check(!setup.resize_next(10) && !setup.resize_next(15), "one poll at a time");
}

// 2 queued requests recommend 2 instances.
void the_autoscaler_is_polled() {
  FleetSetup setup(simulation_with(
      2, {.initial_instances = 1,
          .autoscaler =
              fleet::QueueScaler{
                  .poll_s = 5, .queue_threshold = 1, .up_stabilization_s = 0, .up_period_s = 0},
          .startup_s = 3}));
  setup.resize();
  check(!setup.resize_next(5, 2), "it takes its time");
  check(setup.resize_next(8, 2) && setup.fleet.num_ready() == 2, "the second one is ready");
  check(!setup.resize_next(10, 2), "polls go on");
}

// ---- the way of a request ------------------------------------------------------------------

void a_request_enters_is_served_and_leaves() {
  Simulation simulation = simulation_with(2);
  simulation.gateway.limit = {gateway::DualLimit{}};
  FleetSetup setup(simulation);
  set_clock(setup.context, 1);
  setup.send(1, kSecondInstance);
  check(setup.context.states.instance[1] == 1, "where it was sent");
  check(setup.outcome(1) == Outcome::in_transit, "on its way");
  check(setup.enter_next(kSecondInstance, 1) == RequestId{1}, "it enters");
  check(setup.outcome(1) == Outcome::running && setup.first_tokens.empty(), "inside");
  setup.end_step_next(1.5);
  check(setup.first_tokens == std::vector{RequestId{1}} && setup.ended.empty(), "its first token");
  setup.end_step_next(3);
  check(setup.ended == std::vector{RequestId{1}}, "its last");
  check(setup.outcome(1) == Outcome::completed, "complete");
  check(is(take(setup.context), Phase::permit_release, 3, 1), "its permit returns");
  setup.fleet.released(RequestId{1}, Outcome::completed);
  check(!has_events(setup.context), "nothing else");
}

// An entry delay of one second, which only the step loop has.
void a_request_is_in_transit_for_its_entry_delay() {
  Simulation simulation = simulation_with(1);
  simulation.instances = {{.latency = instance::Linear{.alpha0_us = 1e6, .alpha_input_us = 0}}};
  FleetSetup setup(simulation);
  set_clock(setup.context, 2);
  setup.send(0, kFirstInstance);
  check(setup.enter_next(kFirstInstance, 3) == RequestId{0}, "a second later");
}

// The instance is reported ready after 1 s, but serves after 5 s.
void an_instance_that_does_not_serve_yet_lets_nothing_in() {
  FleetSetup setup(simulation_with(2, {.initial_instances = 1,
                                       .target_instances = 2,
                                       .startup_s = 5,
                                       .reported_ready_after_s = 1}));
  setup.resize();
  check(setup.resize_next(1) && setup.fleet.num_ready() == 2, "reported ready");
  set_clock(setup.context, 2);
  setup.send(0, kSecondInstance);
  setup.send(1, kFirstInstance);
  check(setup.enter_next(kFirstInstance, 2) == RequestId{1}, "the first one serves");
  setup.end_step_next(2.5);
  setup.end_step_next(4);
  check(is(take(setup.context), Phase::permit_release, 4, 1), "it has served");
  check(setup.enter_next(kSecondInstance, 5) == RequestId{0}, "the second one serves now");
  setup.end_step_next(5.5);
  set_clock(setup.context, 6);
  setup.send(1, kSecondInstance);
  check(setup.enter_next(kSecondInstance, 6) == RequestId{1}, "and from now on");
}

// ---- withdrawals ---------------------------------------------------------------------------

void a_request_inside_is_evicted_at_once() {
  FleetSetup setup(simulation_with(1));
  setup.send(0, kFirstInstance);
  setup.enter_next(kFirstInstance, 0);
  setup.fleet.evict(RequestId{0});
  check(setup.outcome(0) == Outcome::evicted && setup.ended.size() == 1, "it has left");
  check(is(take(setup.context), Phase::permit_release, 0, 0), "its permit returns");
  setup.fleet.released(RequestId{0}, Outcome::evicted);
  check(!setup.enter_next(kFirstInstance, 0), "its place is free");
}

void a_request_in_transit_is_evicted_as_it_enters() {
  FleetSetup setup(simulation_with(1));
  setup.send(0, kFirstInstance);
  setup.send(1, kFirstInstance);
  setup.fleet.evict(RequestId{0});
  check(setup.outcome(0) == Outcome::in_transit && setup.ended.empty(), "on its way");
  check(setup.enter_next(kFirstInstance, 0) == RequestId{0}, "it enters");
  check(setup.outcome(0) == Outcome::evicted && setup.ended.size() == 1, "and leaves");
  check(is(take(setup.context), Phase::permit_release, 0, 0), "its permit returns");
  check(setup.enter_next(kFirstInstance, 0) == RequestId{1}, "the other one enters");
  check(setup.outcome(1) == Outcome::running, "and stays");
}

// The same id may be reused in streaming mode.
void an_eviction_is_carried_out_once() {
  FleetSetup setup(simulation_with(1));
  setup.send(0, kFirstInstance);
  setup.fleet.evict(RequestId{0});
  setup.enter_next(kFirstInstance, 0);
  take(setup.context);
  setup.context.states.clear(RequestId{0});
  setup.send(0, kFirstInstance);
  setup.enter_next(kFirstInstance, 0);
  check(setup.outcome(0) == Outcome::running, "the next one stays");
}

void a_request_that_has_ended_is_not_evicted() {
  FleetSetup setup(simulation_with(1));
  setup.send(0, kFirstInstance);
  setup.enter_next(kFirstInstance, 0);
  setup.end_step_next(0.5);
  setup.end_step_next(2);
  setup.fleet.evict(RequestId{0});
  check(setup.outcome(0) == Outcome::completed && setup.ended.size() == 1, "it is complete");
}

// ---- state ---------------------------------------------------------------------------------

// Two ranks: the next request goes to the one with fewer inside.
void requests_count_at_their_ranks() {
  Simulation simulation = simulation_with(1);
  simulation.instances[0].data_parallel_size = 2;
  FleetSetup setup(simulation);
  check(setup.fleet.ranks() == std::vector<std::size_t>{2}, "two ranks");
  const instance::Instance& instance = *setup.fleet.instances()[0];
  check(instance.next_rank() == 0, "the first of equals");
  setup.send(0, kFirstInstance, 0);
  check(instance.next_rank() == 1, "one counts at the first");
  setup.send(1, kFirstInstance, 1);
  check(setup.context.states.rank[1] == 1 && instance.next_rank() == 0, "one each");
  setup.fleet.left(RequestId{1});
  check(instance.next_rank() == 1, "it does not count any longer");
}

void samples_add_up_instances_and_tenants() {
  Simulation simulation = simulation_of(
      {{.tenant = 1, .slo_class = 1, .output_tokens = 7}, {.tenant = 0, .output_tokens = 4}},
      {{.name = "a"}, {.name = "b"}}, {{.name = "x"}, {.name = "y"}, {.name = "z"}});
  simulation.instances = simulation_with(2).instances;
  simulation.metrics.timeline_step_s = 1;
  FleetSetup setup(simulation);
  setup.send(0, kFirstInstance);
  setup.enter_next(kFirstInstance, 0);
  setup.end_step_next(0.5);
  setup.end_step_next(2);
  take(setup.context);
  setup.send(1, kSecondInstance);
  setup.enter_next(kSecondInstance, 2);
  metrics::Sample state{.running = 1};
  std::vector<metrics::TenantSample> tenants(2);
  setup.fleet.add_to(state, tenants);
  check(state.ready_instances == 2 && state.running == 2, "the one inside is added");
  check(tenants[1].emitted_tokens == 7 && tenants[0].emitted_tokens == 0, "of the second tenant");
}

void the_end_of_a_run_is_written_down() {
  Simulation simulation = simulation_with(1);
  FleetSetup setup(simulation);
  setup.send(0, kFirstInstance);
  setup.enter_next(kFirstInstance, 0);
  setup.end_step_next(0.5);
  setup.fleet.close(from_seconds(1.25));
  check(setup.context.states.emitted[0] == 1 + 4, "10 tokens: half of the last 9 have come");
}

void only_scraped_instances_have_scrapes() {
  FleetSetup live(simulation_with(1));
  check(live.fleet.scrapes() == nullptr, "none");
  Simulation simulation = simulation_with(1);
  simulation.signals = signals::Scraped{.period_s = 1, .phase_s = 0.25};
  FleetSetup scraped(simulation);
  check(scraped.fleet.scrapes()->time_of(kFirstInstance, 1) == from_seconds(1.25),
        "those of the settings");
}

// One request at a time: half a second to the engine's queue, a step of one second for its only
// token.
void exact_estimates_know_of_requests_in_transit() {
  Simulation simulation = simulation_of({{.output_tokens = 1}, {.output_tokens = 1}});
  simulation.gateway.admission = {
      gateway::PredictiveTtft{.estimator = gateway::TtftEstimator::exact}};
  simulation.instances = {{.max_num_seqs = 1,
                           .latency = instance::Linear{.alpha0_us = 5e5,
                                                       .alpha_input_us = 0,
                                                       .alpha_output_us = 0,
                                                       .beta0_us = 1e6,
                                                       .beta_prefill_us = 0,
                                                       .beta_decode_us = 0}}};
  FleetSetup setup(simulation);
  const signals::RequestView request(setup.context.requests, RequestId{1});
  check(setup.view().exact_first_token(request, 0) == from_seconds(1.5), "alone");
  setup.send(0, kFirstInstance);
  check(setup.view().exact_first_token(request, 0) == from_seconds(2.5), "behind the other one");
}

}  // namespace

CASES(a_constant_fleet_is_ready_from_the_start, a_target_counts_once_instances_are_ready,
      requests_may_wait_for_the_first_instance, a_target_between_two_polls_leaves_one_chain_of_them,
      the_autoscaler_is_polled, a_request_enters_is_served_and_leaves,
      a_request_is_in_transit_for_its_entry_delay,
      an_instance_that_does_not_serve_yet_lets_nothing_in, a_request_inside_is_evicted_at_once,
      a_request_in_transit_is_evicted_as_it_enters, an_eviction_is_carried_out_once,
      a_request_that_has_ended_is_not_evicted, requests_count_at_their_ranks,
      samples_add_up_instances_and_tenants, the_end_of_a_run_is_written_down,
      only_scraped_instances_have_scrapes, exact_estimates_know_of_requests_in_transit);
