// Whole runs, mainly for the sanitizers: every policy, both profiles' step loops, memory pressure,
// horizons. With sanitizers on, the run itself checks KV memory after every event.
#include "cluster/run.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "blis_server.h"
#include "check.h"
#include "cluster/columns.h"
#include "cluster/session.h"
#include "workload/generate.h"

using namespace spillway;

namespace {

cluster::Simulation pressed() {
  cluster::Simulation simulation;
  workload::Synthetic synthetic;
  synthetic.requests_per_s = 40;
  synthetic.num_requests = 400;
  workload::Client a;
  a.name = "a";
  a.tenant = "gold";
  a.slo_class = "critical";
  a.input_tokens = workload::Lognormal{.mu = 5.5, .sigma = 1, .max_tokens = 3000};
  a.output_tokens = workload::Exponential{.mean_tokens = 60, .max_tokens = 400};
  workload::Client b = a;
  b.name = "b";
  b.tenant = "free";
  b.slo_class = "sheddable";
  b.arrivals = workload::Gamma{.cv = 2};
  b.prefix_group = "shared";
  b.prefix_tokens = 100;
  synthetic.clients = {a, b};
  simulation.workload = synthetic;
  instance::InstanceGroup group = blis_server();
  group.count = 2;
  group.max_num_seqs = 32;
  group.max_num_batched_tokens = 512;
  group.num_kv_blocks = 260;
  simulation.instances = {group};
  return simulation;
}

cluster::Column column(const cluster::Output& output, std::string_view name) {
  for (const cluster::ColumnKind& kind : cluster::columns()) {
    if (kind.name == name) return kind.derive(*output.record);
  }
  check(false, "there is such a column");
  return {};
}

// Seconds, −1 where not applicable, so that they can be compared.
std::vector<double> seconds(const cluster::Output& output, std::string_view name) {
  auto values = std::get<std::vector<double>>(column(output, name));
  for (double& value : values) {
    if (std::isnan(value)) value = -1;
  }
  return values;
}

void every_combination_drains() {
  const std::vector<gateway::Admission> admissions{
      gateway::AlwaysAdmit{}, gateway::RejectAll{},
      gateway::TokenBucket{.capacity_tokens = 5000, .refill_tokens_per_s = 5000}};
  const std::vector<router::Router> routers{router::RoundRobin{},
                                            router::LeastLoaded{.ties = router::Ties::random},
                                            router::AlwaysBusiest{}};
  const std::vector<instance::Scheduler> schedulers{
      instance::Fcfs{}, instance::PriorityFcfs{}, instance::Sjf{},
      instance::ReversePriority{.priority = instance::Priority::age}};
  std::int64_t preemptions = 0;
  for (int rules = 0; rules < 8; ++rules) {
    for (std::size_t i = 0; i < schedulers.size(); ++i) {
      cluster::Simulation simulation = pressed();
      simulation.gateway.admission = {admissions[i % admissions.size()]};
      if (i % 2 == 1) simulation.gateway.limit = {gateway::FixedLimit{.max_in_flight = 30}};
      simulation.router = routers[i % routers.size()];
      if (i == 1) simulation.signals = signals::OnRead{.period_s = 0.2};
      simulation.instances[0].scheduler = schedulers[i];
      simulation.instances[0].completion = static_cast<instance::Completion>(rules & 1);
      simulation.instances[0].preemption = static_cast<instance::Preemption>((rules >> 1) & 1);
      simulation.metrics.accounting = static_cast<metrics::Accounting>((rules >> 2) & 1);
      const cluster::Output output = cluster::run(simulation, 1);
      const auto& ledger = output.ledger;
      check(ledger.queued + ledger.in_transit + ledger.running == 0, "the run drains");
      for (const auto& instance : output.instances) preemptions += instance.preemptions;
    }
  }
  check(preemptions > 100, "memory was short");
}

void horizon_leaves_requests_where_they_are() {
  cluster::Simulation simulation = pressed();
  simulation.gateway.limit = {gateway::FixedLimit{.max_in_flight = 4}};
  simulation.gateway.admission_latency_s = 0.5;
  simulation.gateway.routing_latency_s = 0.3;
  simulation.horizon_s = 3;
  const cluster::Output output = cluster::run(simulation, 1);
  const auto& ledger = output.ledger;
  check(ledger.queued > 0 && ledger.at_admission > 0 && ledger.running > 0,
        "all stages are occupied");
  check(output.end_s <= 3.0, "nothing happens after the horizon");
  check(seconds(output, "arrival_s").back() <= 3.0, "later requests were not offered");
}

void runs_share_nothing() {
  const cluster::Simulation simulation = pressed();
  std::vector<cluster::Output> outputs(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&, i] { outputs[i] = cluster::run(simulation, i / 2); });
  }
  for (std::thread& thread : threads) thread.join();
  check(seconds(outputs[0], "ttft_s") == seconds(outputs[1], "ttft_s"), "equal seeds");
  check(seconds(outputs[0], "ttft_s") != seconds(outputs[2], "ttft_s"), "other seeds");
}

void interruption_ends_a_run() {
  cluster::Simulation simulation;
  std::get<workload::Synthetic>(simulation.workload).num_requests = 20000;
  int asked = 0;
  check_throws<sim::Interrupted>(
      [&] { cluster::run(simulation, 0, {.interrupted = [&] { return ++asked == 2; }}); },
      "interrupted");
  check(asked == 2, "it was not asked again");
}

// Between two checks, at most a fixed number of requests is generated.
void interruption_ends_the_generation_of_requests() {
  workload::Synthetic synthetic;
  const auto chunk = static_cast<std::int64_t>(workload::kRequestsBetweenChecks);
  check(chunk <= 1 << 16, "a small part of a second");
  synthetic.num_requests = 5 * chunk + 7;
  int asked = 0;
  const auto never = [&] { return ++asked < 0; };
  const auto all = workload::generate(synthetic, 0, 1, never);
  check(asked == 5 && std::cmp_equal(all->size(), 5 * chunk + 7), "asked after every chunk");
  check(workload::generate(synthetic, 0, 1)->arrival == all->arrival, "nothing else changes");

  cluster::Simulation simulation;
  simulation.workload = synthetic;
  for (const int last : {1, 3}) {
    const auto at_last = [&] { return ++asked == last; };
    asked = 0;
    check_throws<sim::Interrupted>([&] { cluster::offered_requests(simulation, 0, at_last); },
                                   "offered requests");
    check(asked == last, "it was not asked again");
    asked = 0;
    check_throws<sim::Interrupted>([&] { cluster::run(simulation, 0, {.interrupted = at_last}); },
                                   "a run that generates its requests");
    check(asked == last, "the run did not begin");
  }
}

void empty_trace_is_refused() {
  cluster::Simulation simulation;
  simulation.workload = workload::Trace{};
  check_throws<sim::ConfigError>([&] { cluster::run(simulation, 0); }, "an empty trace");
}

// The callback of its run calls it.
void a_session_takes_one_call() {
  cluster::Simulation simulation;
  std::get<workload::Synthetic>(simulation.workload).num_requests = 20000;
  const auto plain = cluster::run(simulation, 1);
  std::unique_ptr<cluster::Session> session;
  int asked = 0;
  const std::function<bool()> interrupted = [&] {
    if (!session) return false;
    ++asked;
    check_throws<sim::UsageError>([&] { session->advance(sim::kForever); }, "advance");
    check_throws<sim::UsageError>([&] { session->advance_by(1); }, "advance_by");
    check_throws<sim::UsageError>([&] { session->observe(true); }, "observe");
    check_throws<sim::UsageError>([&] { session->finish(); }, "finish");
    check_throws<sim::UsageError>([&] { session->has_pending_work(); }, "has_pending_work");
    check_throws<sim::UsageError>([&] { session->num_submitted(); }, "num_submitted");
    check_throws<sim::UsageError>([&] { session->status(0); }, "status");
    check_throws<sim::UsageError>([&] { session->set({}, sim::kForever); }, "set");
    check_throws<sim::UsageError>([&] { session->submit({}, sim::kForever); }, "submit");
    check(session->now() == sim::Time{0}, "now");
    return asked == 2;
  };
  session = std::make_unique<cluster::Session>(simulation, 1,
                                               cluster::RunOptions{.interrupted = interrupted});
  check_throws<sim::Interrupted>([&] { session->finish(); }, "interrupted");
  check(asked == 2 && session->now() > sim::Time{0}, "it is held where it was interrupted");
  session->observe(true);
  const std::unique_ptr<cluster::Session> held = std::move(session);  // it calls no more
  const cluster::Output output = held->finish();
  check(output.events == plain.events && output.end_s == plain.end_s, "it is the run");
  check_throws<sim::UsageError>([&] { held->finish(); }, "it is over");
  check_throws<sim::UsageError>([&] { held->status(0); }, "it is over");
}

}  // namespace

CASES(every_combination_drains, horizon_leaves_requests_where_they_are, runs_share_nothing,
      interruption_ends_a_run, interruption_ends_the_generation_of_requests, empty_trace_is_refused,
      a_session_takes_one_call);
