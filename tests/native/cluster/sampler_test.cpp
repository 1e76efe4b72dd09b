// The timeline: the counts per tenant, and the schedule of samples.
#include "cluster/sampler.h"

#include <cstddef>
#include <vector>

#include "actors.h"
#include "check.h"

using namespace spillway;
using cluster::Context;
using cluster::Sampler;
using cluster::Simulation;
using metrics::Sample;
using metrics::TenantSample;
using metrics::Timeline;
using sim::from_seconds;
using sim::Phase;
using sim::RequestId;
using workload::Outcome;

namespace {

// Requests 0 and 1 of the first tenant, 2 of the second.
struct SamplerSetup {
  SamplerSetup() : simulation(two_tenants()), context(simulation, 1) { context.states.resize(3); }

  static Simulation two_tenants() {
    Simulation simulation = simulation_of({{.tenant = 0}, {.tenant = 0}, {.tenant = 1}},
                                          {{.name = "a"}, {.name = "b"}});
    simulation.metrics.timeline_step_s = 0.5;
    return simulation;
  }
  void drop(std::size_t request, Outcome outcome) {
    context.states.outcome[request] = outcome;
    sampler.dropped(RequestId{request});
  }

  Simulation simulation;
  Context context;
  Sampler sampler{context};
};

void there_are_no_samples_unless_they_are_asked_for() {
  const Simulation simulation = simulation_of({{}});
  Context context(simulation, 1);
  context.states.resize(1);
  Sampler sampler(context);
  sampler.start();
  sampler.submitted(RequestId{0});
  sampler.released(RequestId{0}, Outcome::completed);
  check(!has_events(context), "none is due");
  const Timeline timeline = sampler.take_timeline();
  check(timeline.samples.empty() && timeline.tenants.empty(), "there is none");
}

void samples_are_due_as_long_as_the_run_goes_on() {
  SamplerSetup setup;
  setup.sampler.start();
  check(is(take(setup.context), Phase::timeline_sample, 0), "the first one");
  setup.sampler.sample({}, std::vector<TenantSample>(2), true);
  check(is(take(setup.context), Phase::timeline_sample, 0.5), "a step later");
  setup.sampler.sample({}, std::vector<TenantSample>(2), false);
  check(!has_events(setup.context), "the last one");
}

void tenants_are_counted_apart() {
  SamplerSetup setup;
  for (std::size_t i = 0; i < 3; ++i) setup.sampler.submitted(RequestId{i});
  setup.sampler.shed(RequestId{0});
  setup.sampler.released(RequestId{1}, Outcome::completed);
  setup.sampler.released(RequestId{2}, Outcome::rejected);
  setup.sampler.sample({}, std::vector<TenantSample>(2), false);
  const Timeline timeline = setup.sampler.take_timeline();
  const TenantSample& a = timeline.tenants[0];
  const TenantSample& b = timeline.tenants[1];
  check(a.submitted == 2 && a.shed == 1 && a.completed == 1, "two of the first tenant");
  check(b.submitted == 1 && b.shed == 0 && b.completed == 0, "only what is complete counts");
}

void what_a_client_withdraws_is_not_shed() {
  SamplerSetup setup;
  setup.drop(0, Outcome::cancelled);
  setup.drop(1, Outcome::expired);
  setup.drop(2, Outcome::evicted);
  setup.sampler.sample({}, std::vector<TenantSample>(2), false);
  const Timeline timeline = setup.sampler.take_timeline();
  check(timeline.tenants[0].shed == 1, "it has expired");
  check(timeline.tenants[1].shed == 1, "it has been evicted");
}

// The counts are added to the state of gateways and instances at that instant.
void samples_keep_what_they_are_given() {
  SamplerSetup setup;
  setup.sampler.submitted(RequestId{2});
  const std::vector<TenantSample> first{{.queued = 4}, {.dispatched = 7, .emitted_tokens = 90}};
  setup.sampler.sample({.at = from_seconds(1), .in_flight = 3}, first, true);
  setup.sampler.submitted(RequestId{0});
  const std::vector<TenantSample> second{{.queued = 5}, {.dispatched = 8}};
  setup.sampler.sample({.at = from_seconds(2), .in_flight = 6}, second, true);
  const Timeline timeline = setup.sampler.take_timeline();
  check(timeline.samples.size() == 2 && timeline.tenants.size() == 4, "of both");
  check(timeline.samples[0].in_flight == 3 && timeline.samples[1].at == from_seconds(2),
        "as given");
  check(timeline.tenants[0].queued == 4 && timeline.tenants[0].submitted == 0, "the first tenant");
  check(timeline.tenants[1].dispatched == 7 && timeline.tenants[1].emitted_tokens == 90 &&
            timeline.tenants[1].submitted == 1,
        "the second one");
  check(timeline.tenants[2].queued == 5 && timeline.tenants[2].submitted == 1, "a second later");
  check(timeline.tenants[3].dispatched == 8 && timeline.tenants[3].submitted == 1, "all so far");
}

}  // namespace

CASES(there_are_no_samples_unless_they_are_asked_for, samples_are_due_as_long_as_the_run_goes_on,
      tenants_are_counted_apart, what_a_client_withdraws_is_not_shed,
      samples_keep_what_they_are_given);
