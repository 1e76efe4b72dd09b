// The pipeline alone: the departures of each call, and the counters.
#include "gateway/pipeline.h"

#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "offered.h"

using namespace spillway;
using gateway::Departures;
using gateway::Gateway;
using gateway::Pipeline;
using sim::from_seconds;
using sim::RequestId;
using workload::Outcome;

namespace {

/// A gateway in front of a fleet of one, known only by the gateway's own count.
struct PipelineSetup {
  explicit PipelineSetup(std::vector<Offered> offered, Gateway config = {},
                         std::vector<workload::SloClass> slo_classes = {{}})
      : table(make_table(offered, {{}}, std::move(slo_classes))),
        pipeline(config, 0, *table, states, 1, 1) {
    states.resize(table->capacity());
  }

  signals::View view() const { return {sources, local, {}}; }
  bool admit(std::size_t request, double at_s = 0) {
    pipeline.arrive();
    return pipeline.admit(RequestId{request}, 0, view(), from_seconds(at_s)).admitted;
  }
  const Departures& drain(double at_s = 0) {
    const signals::View seen = view();
    return pipeline.drain(&seen, from_seconds(at_s));
  }
  Outcome outcome(std::size_t request) const { return states.outcome[request]; }
  bool is_balanced() const {
    const gateway::GatewayCounters& counters = pipeline.counters();
    return counters.attempts == counters.admitted + counters.rejected &&
           counters.queued() == pipeline.queued(sim::TenantId{}) &&
           counters.dispatched == pipeline.dispatched(sim::TenantId{});
  }

  signals::Sources sources;
  std::vector<std::int32_t> in_flight{0};
  signals::LocalState local{.in_flight = in_flight};
  std::unique_ptr<workload::RequestTable> table;
  workload::RequestStates states;
  Pipeline pipeline;
};

Gateway at_most(std::int64_t in_flight) {
  Gateway config;
  config.limit = {gateway::FixedLimit{.max_in_flight = in_flight}};
  return config;
}

void permits_let_requests_out_in_order() {
  PipelineSetup setup({{}, {}, {}}, at_most(2));
  for (std::size_t i = 0; i < 3; ++i) check(setup.admit(i), "admitted");
  check(ids(setup.drain(1).dispatched) == Ids{0, 1}, "as many as there are permits");
  check(setup.states.dispatched[1] == from_seconds(1), "when");
  check(setup.outcome(1) == Outcome::in_transit && setup.outcome(2) == Outcome::queued, "where");
  check(setup.drain(2).dispatched.empty(), "each is let out once");
  check(setup.pipeline.release(RequestId{0}, Outcome::completed, from_seconds(3)), "one waits");
  check(ids(setup.drain(3).dispatched) == Ids{2}, "the permit has returned");
  check(setup.pipeline.peak_in_flight() == 2 && setup.is_balanced(), "books");
  check(setup.pipeline.limits().held() == std::vector<char>{1}, "the limit has held some");
}

void an_attempt_lets_one_out() {
  Gateway config;
  config.dispatch = gateway::Dispatch::one_per_attempt;
  PipelineSetup setup({{}, {}}, config);
  setup.admit(0);
  setup.admit(1);
  check(ids(setup.drain().dispatched) == Ids{0}, "one");
  check(ids(setup.drain().dispatched) == Ids{1}, "one more");
}

void passing_equals_queueing() {
  Gateway config;
  config.admission = {gateway::TokenBucket{.capacity_tokens = 250, .refill_tokens_per_s = 100}};
  const std::vector<Offered> offered(5, Offered{.input_tokens = 100});
  PipelineSetup passing(offered, config);
  PipelineSetup queueing(offered, config);
  check(passing.pipeline.never_holds(), "nothing can hold a request");
  for (std::size_t i = 0; i < offered.size(); ++i) {
    const double at_s = 0.4 * static_cast<double>(i);
    passing.pipeline.arrive();
    const bool passes = passing.pipeline.pass(RequestId{i}, 0, passing.view(), from_seconds(at_s));
    check(queueing.admit(i, at_s) == passes, "the same decision");
    if (passes) check(ids(queueing.drain(at_s).dispatched) == Ids{i}, "and dispatch");
    check(passing.outcome(i) == queueing.outcome(i), "the same outcome");
    check(passing.states.admitted[i] == queueing.states.admitted[i], "admitted when");
    check(passing.states.dispatched[i] == queueing.states.dispatched[i], "dispatched when");
    if (i == 1) {
      for (PipelineSetup* setup : {&passing, &queueing}) {
        check(!setup->pipeline.release(RequestId{0}, Outcome::completed, from_seconds(at_s)),
              "none waits");
      }
    }
  }
  const gateway::GatewayCounters& counters = passing.pipeline.counters();
  check(counters.rejected == 1 && counters.dispatched == 4 && passing.is_balanced(), "books");
  check(counters.in_flight() == queueing.pipeline.counters().in_flight() &&
            passing.pipeline.peak_in_flight() == queueing.pipeline.peak_in_flight(),
        "the same books");
}

void anything_that_may_hold_a_request_is_known() {
  const auto holds = [](const auto& change, const workload::Tenant& tenant = {}) {
    Gateway config;
    change(config);
    return !gateway::never_holds(config, std::vector{tenant});
  };
  check(!holds([](Gateway&) {}), "the default holds none");
  check(holds([](Gateway&) {}, {.queue_max = 3}), "a tenant's bound");
  check(holds([](Gateway& g) { g.max_queued = 3; }), "a bound");
  check(holds([](Gateway& g) { g.bands[0].max_requests = 3; }), "a band's bound");
  check(holds([](Gateway& g) { g.bands[0].queue.max_requests = 3; }), "a queue's bound");
  check(holds([](Gateway& g) { g.bands[0].queue.timeout_s = 1; }), "a time-out");
  check(holds([](Gateway& g) { g.bands[0].queue.codel_target_s = 1; }), "controlled delay");
  check(holds([](Gateway& g) { g.bands[0].fairness = gateway::TenantRoundRobin{}; }), "turns");
  check(holds([](Gateway& g) { g.limit.push_back(gateway::FixedLimit{}); }), "a limit");
  check(holds([](Gateway& g) { g.dispatch = gateway::Dispatch::one_per_attempt; }), "attempts");
  check(holds([](Gateway& g) { g.admission_latency_s = 1; }), "the latency of admission");
  check(holds([](Gateway& g) { g.drain_latency_s = 1; }), "that of a drain");
  check(holds([](Gateway& g) { g.routing_latency_s = 1; }), "and that of routing");
}

void rejections_name_their_stage() {
  Gateway config;
  config.admission = {gateway::AlwaysAdmit{}, gateway::RejectAll{}};
  PipelineSetup refusing({{}}, config);
  check(!refusing.admit(0) && refusing.outcome(0) == Outcome::rejected, "by a policy");
  check(refusing.states.reason[0].stage == workload::Stage::admission, "of admission");
  config = {};
  config.max_queued = 0;
  PipelineSetup full({{}}, config);
  check(!full.admit(0) && full.states.reason[0].stage == workload::Stage::queue, "by the queue");
  check(full.pipeline.counters().rejected == 1 && full.is_balanced(), "books");
}

void what_leaves_a_queue_undispatched_is_dropped() {
  Gateway config = at_most(0);
  config.bands[0].queue = {.max_requests = 2, .timeout_s = 5, .drop = gateway::Drop::head};
  PipelineSetup setup({{}, {}, {}}, config);
  setup.admit(0);
  setup.admit(1);
  setup.pipeline.arrive();
  const gateway::Admitted third = setup.pipeline.admit(RequestId{2}, 0, setup.view(), {});
  check(third.admitted && ids(third.departures.dropped) == Ids{0}, "the head is evicted");
  const Departures& withdrawn =
      setup.pipeline.withdraw(RequestId{1}, {workload::Stage::client, 0}, from_seconds(1));
  check(ids(withdrawn.dropped) == Ids{1}, "and what was dropped before is not named again");
  check(ids(setup.pipeline.expire(from_seconds(5)).dropped) == Ids{2}, "its wait is over");
  check(setup.pipeline.expire(from_seconds(6)).dropped.empty(), "none is left");
  check(setup.outcome(0) == Outcome::evicted && setup.outcome(1) == Outcome::cancelled &&
            setup.outcome(2) == Outcome::expired,
        "how each ended");
  const gateway::GatewayCounters& counters = setup.pipeline.counters();
  check(counters.evicted == 1 && counters.withdrawn == 1 && counters.expired == 1, "books");
  check(counters.queued() == 0 && setup.is_balanced(), "books");
}

// Two seats: a sheddable request is evicted for an important one that waits.
void saturation_takes_sheddable_requests_out_of_the_instances() {
  Gateway config;
  config.bands = {{.priority = 0}, {.priority = -1000}};
  gateway::Saturation limit;
  limit.detector = signals::Detector::concurrency;
  limit.max_concurrency = 2;
  config.limit = {limit};
  config.eviction.max_victims = 1;
  PipelineSetup setup({{.slo_class = 1}, {.slo_class = 1}, {.slo_class = 0}}, config,
                      {{.name = "standard"}, {.name = "batch", .priority = -1}});
  setup.admit(0);
  setup.admit(1);
  const Departures& first = setup.drain();
  check(ids(first.dispatched) == Ids{0, 1} && first.evicted.empty(), "both seats are taken");
  setup.admit(2);
  const Departures& second = setup.drain(1);
  check(second.dispatched.empty() && ids(second.evicted) == Ids{1}, "the last one dispatched");
  setup.pipeline.release(RequestId{1}, Outcome::evicted, from_seconds(2));
  check(setup.states.reason[1].stage == workload::Stage::queue, "why it has ended");
  const Departures& third = setup.drain(2);
  check(ids(third.dispatched) == Ids{2} && third.evicted.empty(), "its seat goes to the other");
  check(setup.pipeline.counters().reclaimed == 1 && setup.is_balanced(), "books");
}

// The limit also counts requests without a first token.
void first_tokens_wake_the_queues_where_they_free_a_permit() {
  const auto wakes = [](const gateway::Limit& limit) {
    Gateway config;
    config.limit = {limit};
    PipelineSetup setup({{}, {}}, config);
    setup.admit(0);
    setup.admit(1);
    check(ids(setup.drain().dispatched) == Ids{0}, "one is held");
    return setup.pipeline.first_token(RequestId{0}, sim::InstanceId{}, {}, from_seconds(1));
  };
  check(wakes(gateway::DualLimit{.max_awaiting_first_token = 1}), "the next one may go");
  check(!wakes(gateway::FixedLimit{.max_in_flight = 1}), "it waits for the end");
}

void heads_block_where_requests_differ() {
  const auto blocks = [](const Gateway& config) {
    return PipelineSetup({{}}, config).pipeline.heads_block();
  };
  Gateway config;
  check(!blocks(config), "any request may go instead");
  config.limit = {gateway::TokenBudget{}};
  check(blocks(config), "a large one may keep a small one waiting");
  config.limit = {gateway::PerTenant{}};
  check(blocks(config), "that of another tenant may");
  config = {};
  config.bands.push_back({.priority = 1});
  check(blocks(config), "an important one may");
}

}  // namespace

CASES(permits_let_requests_out_in_order, an_attempt_lets_one_out, passing_equals_queueing,
      anything_that_may_hold_a_request_is_known, rejections_name_their_stage,
      what_leaves_a_queue_undispatched_is_dropped,
      saturation_takes_sheddable_requests_out_of_the_instances,
      first_tokens_wake_the_queues_where_they_free_a_permit, heads_block_where_requests_differ);
