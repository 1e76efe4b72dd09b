// The report of a run with a few requests, which the test passes from actor to actor.
#include "cluster/report.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "actors.h"
#include "check.h"
#include "sim/error.h"
#include "sim/value.h"

using namespace spillway;
using cluster::InstanceReport;
using cluster::Output;
using cluster::Simulation;
using metrics::Metrics;
using sim::Event;
using sim::from_seconds;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;

namespace {

/// The actors of a run, and the path of a request through them, without latencies, ticks and
/// withdrawals.
class Rig final : workload::RequestListener {
 public:
  explicit Rig(Simulation of) : simulation(std::move(of)) {
    for (const auto& gateway : gateways.replicas()) gateway->start(fleet.num_ready());
  }

  Output report_at(double horizon_s) {
    const sim::Time horizon = from_seconds(horizon_s);
    clients.start();
    Event event;
    while (context.events.pop(horizon, event)) handle(event);
    fleet.close(horizon);
    context.statistics.add_rest();
    return cluster::report(
        {context, clients, gateways, fleet, load_events, nullptr, nullptr, nullptr, horizon});
  }

  Simulation simulation;
  cluster::Context context{simulation, 1};
  cluster::Clients clients{context};
  cluster::Fleet fleet{context, *this, false};
  cluster::LoadEvents load_events{context, fleet.instances(), fleet.scrapes()};
  cluster::Gateways gateways{context, fleet.ranks(), nullptr};

 private:
  void handle(const Event& event) {
    context.begin(event);
    const RequestId request{event.subject()};
    switch (event.phase()) {
      case Phase::source_arrival:
        return arrive(clients.arrive(event));
      case Phase::queue_drain:
        if (gateways.at(event.subject()).is_drain_due(event.phase())) {
          drain(gateways.at(event.subject()));
        }
        return;
      case Phase::ingress:
        fleet.enter(event);
        return;
      case Phase::step_start:
        return fleet.start_step(event.subject());
      case Phase::step_end:
        return fleet.end_step(event.subject());
      case Phase::telemetry:
        load_events.handle(event);
        return;
      case Phase::permit_release:
        return released(request);
      default:
        check(false, "nothing else happens");
    }
  }
  void arrive(RequestId request) {
    cluster::GatewayReplica& gateway = gateway_of(request);
    gateway.submit();
    if (gateway.admit(request, 0, view_of(gateway)).admitted && gateway.queued()) drain(gateway);
  }
  void drain(cluster::GatewayReplica& gateway) {
    for (const RequestId request : gateway.drain(nullptr, true).dispatched) {
      const router::Target target = gateway.route(request, view_of(gateway));
      fleet.send(request, target);
      load_events.sent(gateway.index(), request, target.instance);
    }
  }
  void first_token(RequestId request) override {
    load_events.first_token(gateway_of(request).index(), request, context.instance_of(request));
  }
  void finished(RequestId request) override {
    gateway_of(request).finished(request, context.instance_of(request));
    fleet.left(request);
    load_events.finished(gateway_of(request).index(), request, context.instance_of(request));
  }
  void released(RequestId request) override {
    context.statistics.released(request, context.now);
    if (gateway_of(request).release(request, context.states.outcome[request.index()])) {
      drain(gateway_of(request));
    }
  }
  cluster::GatewayReplica& gateway_of(RequestId request) { return gateways.of(request); }
  signals::View view_of(const cluster::GatewayReplica& gateway) {
    return fleet.view(gateway.local_state());
  }
};

// Half a second to the first token and two to the last, at any concurrency.
instance::InstanceGroup steady() {
  return {.plant = instance::ProcessorSharing{.concurrency = {0}, .e2e_s = {2}, .ttft_s = {0.5}}};
}

// A step takes a second, and a request one step.
instance::InstanceGroup one_by_one() {
  return {.max_num_seqs = 1,
          .latency = instance::Linear{.alpha0_us = 0,
                                      .alpha_input_us = 0,
                                      .alpha_output_us = 0,
                                      .beta0_us = 1e6,
                                      .beta_prefill_us = 0,
                                      .beta_decode_us = 0}};
}

// One request is served from 0 s to 2 s, the next from 2 s to 4 s, the third meets a full queue.
Simulation three_requests() {
  Simulation simulation = simulation_of({{}, {.arrival_s = 0.5}, {.arrival_s = 1}});
  simulation.instances = {steady()};
  simulation.gateway.limit = {gateway::FixedLimit{.max_in_flight = 1}};
  simulation.gateway.max_queued = 1;
  return simulation;
}

double figure(const Output& output, std::string_view name) {
  return std::get<double>(sim::Value(output.summary->overall()).find(name)->data);
}

// ---- where the requests are ----------------------------------------------------------------

void requests_that_are_over_are_accounted_for() {
  const Output output = Rig(three_requests()).report_at(100);
  const metrics::Ledger& ledger = output.ledger;
  check(ledger.logical_requests == 3 && ledger.attempts == 3 && ledger.admitted == 2, "admission");
  check(ledger.completed == 2 && ledger.dispatched == 2, "service");
  check(ledger.rejected == std::map<std::string, std::int64_t>{{"queue_full", 1}}, "refusals");
  check(output.instances.size() == 1 && output.instances[0].completed == 2, "of the instance");
  check(output.end_s == 4, "the last event");
  check(output.tenants == std::vector<std::string>{"default"}, "tenants");
  check(output.slo_classes == std::vector<std::string>{"standard"}, "classes");
}

void requests_that_are_not_over_are_where_they_are() {
  const Output output = Rig(three_requests()).report_at(1.25);
  const metrics::Ledger& ledger = output.ledger;
  check(ledger.running == 1 && ledger.queued == 1 && ledger.completed == 0, "in two stages");
  check(output.end_s == 1, "the arrival of the third is the last event");
}

void books_that_do_not_balance_are_a_defect() {
  Rig rig(three_requests());
  rig.gateways.at(0).submit();
  check_throws<sim::InvariantError>([&] { rig.report_at(100); }, "an arrival without a request");
}

// ---- what mechanisms did -------------------------------------------------------------------

void activity_shows_which_mechanisms_acted() {
  Simulation simulation = three_requests();
  simulation.gateway.limit.push_back(gateway::FixedLimit{.max_in_flight = 50});
  const Output output = Rig(simulation).report_at(100);
  check(output.activity.peak_in_flight == 1, "one at a time");
  check(output.activity.limit_held == std::vector<bool>{true, false}, "by the first limit");
  check(output.activity.not_completed == std::map<std::string, std::int64_t>{{"queue_full", 1}},
        "refusals");
  check(!output.activity.busy_threshold_exceeded, "there is none");
}

// Requests 0 and 2 are the first replica's, 1 is the second one's, all at once.
void replicas_are_taken_together() {
  Simulation simulation = simulation_of({{}, {}, {}});
  simulation.instances = {steady()};
  simulation.gateway.replicas = 2;
  simulation.gateway.limit = {gateway::FixedLimit{.max_in_flight = 9}};
  simulation.gateway.controller = gateway::Aimd{};
  simulation.gateway.sensor.tick_s = 1000;
  Rig rig(simulation);
  set_clock(rig.context, 7);
  check(!rig.gateways.at(1).tick(nullptr), "a tick of the second one");
  set_clock(rig.context, 8);
  check(!rig.gateways.at(0).tick(nullptr), "a later one of the first");
  set_clock(rig.context, 0);
  const Output output = rig.report_at(100);
  check(output.ledger.completed == 3, "of both");
  check(output.activity.peak_in_flight == 2, "of the one with the most");
  check(output.control.size() == 2 && output.control[0].replica == 1 &&
            output.control[1].replica == 0,
        "what controllers did in order of time");
}

// Prompts of 70 tokens: two on the first instance exceed the threshold, one on the first of the two
// ranks of the second does not.
void the_load_of_ranks_is_what_the_gateway_knows() {
  Simulation simulation =
      simulation_of({{.input_tokens = 70}, {.input_tokens = 70}, {.input_tokens = 70}});
  simulation.instances = {steady(), steady()};
  simulation.instances[1].data_parallel_size = 2;
  simulation.busy_monitor.active_prefill_tokens_threshold = 100;
  const Output output = Rig(simulation).report_at(0.25);
  check(output.ranks.size() == 3, "one and two");
  const cluster::RankReport& busy = output.ranks[0];
  check(busy.instance == 0 && busy.active_prefill_tokens == 140 && busy.worker_is_busy, "busy");
  const cluster::RankReport& loaded = output.ranks[1];
  check(loaded.instance == 1 && loaded.rank == 0 && loaded.active_prefill_tokens == 70, "one");
  const cluster::RankReport& idle = output.ranks[2];
  check(idle.instance == 1 && idle.rank == 1 && idle.active_prefill_tokens == 0, "none");
  check(!loaded.worker_is_busy && !idle.worker_is_busy, "not busy");
  check(output.activity.busy_threshold_exceeded, "by one of them");
  check(Rig(three_requests()).report_at(100).ranks.empty(), "nothing is known without need");
}

// One inside, one waiting, and one rejected by the second instance.
void only_ingresses_that_are_not_open_are_reported() {
  Simulation simulation = simulation_of({{}, {}, {}, {}, {}, {}, {}, {}});
  simulation.instances = {steady(), steady()};
  simulation.instances[1].ingress =
      instance::EngineRequestLimit{.max_requests = 1, .queue_size = 1};
  const Output output = Rig(simulation).report_at(0.25);
  check(output.ingresses.size() == 1 && output.ingresses[0].instance == 1, "the second instance");
  check(output.ingresses[0].counts.entered_at_once == 1, "one is inside");
  check(output.ingresses[0].counts.queued == 2, "a queue of 1 holds 2");
  check(output.ingresses[0].counts.refused == 1 && output.instances[1].refused == 1, "one is not");
}

// Two requests of one step each, one after the other: one waits during the first of two seconds,
// that is, during the first of two steps.
void queues_are_averaged_over_time_and_over_steps() {
  Simulation simulation = simulation_of({{.output_tokens = 1}, {.output_tokens = 1}});
  simulation.instances = {one_by_one(), one_by_one()};
  simulation.router = router::AlwaysBusiest{};
  const Output output = Rig(simulation).report_at(100);
  check(output.instances[0].completed == 2 && output.instances[1].completed == 0, "on the first");
  check(output.instances[0].mean_waiting == 0.5, "over time");
  check(output.instances[0].mean_waiting_at_step == 0.5, "over steps");
  check(output.instances[1].mean_waiting == 0 && output.instances[1].mean_waiting_at_step == 0,
        "an idle one has no steps");
  check(output.steps == 2, "of the fleet");
}

// The second request goes to the first one's instance, although the other is idle.
void regret_is_averaged_over_decisions() {
  Simulation simulation = simulation_of({{}, {}});
  simulation.instances = {steady(), steady()};
  simulation.router = router::AlwaysBusiest{};
  simulation.metrics.traced_candidates = 2;
  const Output output = Rig(simulation).report_at(100);
  check(figure(output, "mean_regret") == 0.5, "0 and 1");
  check(figure(output, "max_regret") == 1, "the second one");
}

// ---- KV memory -----------------------------------------------------------------------------

// Of two instances: 3 hits of 4 lookups, 1 of 8.
void the_hit_rate_is_that_of_all_lookups() {
  const std::vector<InstanceReport> reports{{.kv_hits = 3, .kv_misses = 1, .kv_lookups = 4},
                                            {.kv_hits = 1, .kv_misses = 99, .kv_lookups = 8}};
  check(cluster::cache_hit_rate(reports, Metrics{}) == 4.0 / 12, "misses do not count");
  const std::vector<InstanceReport> idle{{.kv_misses = 5}};
  check(!cluster::cache_hit_rate(idle, Metrics{}), "none without lookups");
}

// 3 of 4 blocks, and none by an instance that is idle.
void blis_averages_the_hit_rates_of_instances() {
  const Metrics reported{.accounting = metrics::Accounting::blis};
  const std::vector<InstanceReport> reports{{.kv_hits = 3, .kv_misses = 1, .kv_lookups = 99}, {}};
  check(cluster::cache_hit_rate(reports, reported) == 0.375, "lookups do not count");
  const std::vector<InstanceReport> idle{{}};
  check(cluster::cache_hit_rate(idle, reported) == 0.0, "0 without blocks");
}

}  // namespace

CASES(requests_that_are_over_are_accounted_for, requests_that_are_not_over_are_where_they_are,
      books_that_do_not_balance_are_a_defect, activity_shows_which_mechanisms_acted,
      replicas_are_taken_together, the_load_of_ranks_is_what_the_gateway_knows,
      only_ingresses_that_are_not_open_are_reported, queues_are_averaged_over_time_and_over_steps,
      regret_is_averaged_over_decisions, the_hit_rate_is_that_of_all_lookups,
      blis_averages_the_hit_rates_of_instances);
