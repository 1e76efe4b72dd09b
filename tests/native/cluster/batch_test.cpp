// Batches on several threads, mainly for ThreadSanitizer: the outputs do not depend on the number
// of threads, and the runs share only the requests that they read.
#include "cluster/batch.h"

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "check.h"
#include "cluster/columns.h"

using namespace spillway;

namespace {

using Outputs = std::vector<std::shared_ptr<const cluster::Output>>;

cluster::Simulation small(std::int64_t num_requests, std::int64_t instances) {
  cluster::Simulation simulation;
  workload::Synthetic synthetic;
  synthetic.requests_per_s = 30;
  synthetic.num_requests = num_requests;
  synthetic.clients[0].output_tokens = workload::Exponential{.mean_tokens = 60, .max_tokens = 400};
  simulation.workload = synthetic;
  simulation.instances[0].count = instances;
  simulation.instances[0].max_num_seqs = 16;
  return simulation;
}

std::vector<cluster::Simulation> several() {
  std::vector<cluster::Simulation> simulations;
  for (std::int64_t i = 1; i <= 3; ++i) {
    simulations.push_back(small(300, i));
    simulations.push_back(small(200, i));
  }
  simulations.push_back(small(300, 1));
  simulations.back().quantum_ns = 1'000'000;
  simulations.push_back(small(300, 1));
  simulations.back().metrics.streaming = true;
  return simulations;
}

template <class T>
bool equal(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    bool same = a[i] == b[i];
    if constexpr (std::is_floating_point_v<T>) {
      same = same || (std::isnan(a[i]) && std::isnan(b[i]));
    }
    if (!same) return false;
  }
  return true;
}

bool equal(const cluster::Column& a, const cluster::Column& b) {
  return a.index() == b.index() &&
         std::visit(
             [&](const auto& values) {
               return equal(values, std::get<std::decay_t<decltype(values)>>(b));
             },
             a);
}

void check_equal(const cluster::Output& a, const cluster::Output& b) {
  check(a.summary->overall() == b.summary->overall(), "figures of all requests");
  check(a.summary->by_class() == b.summary->by_class(), "figures per class");
  check(a.summary->by_tenant() == b.summary->by_tenant(), "figures per tenant");
  check(a.ledger.to_value() == b.ledger.to_value(), "ledgers");
  check(a.steps == b.steps && a.events == b.events, "steps and events");
  check((a.record == nullptr) == (b.record == nullptr), "whether requests were kept");
  if (!a.record) return;
  check(a.record->offered == b.record->offered, "number of requests");
  for (const cluster::ColumnKind& kind : cluster::columns()) {
    check(equal(kind.derive(*a.record), kind.derive(*b.record)), std::string(kind.name));
  }
}

void outputs_do_not_depend_on_threads() {
  const std::vector<cluster::Simulation> simulations = several();
  const std::vector<std::uint64_t> seeds{3, 0, 7};
  for (const bool keep : {true, false}) {
    const Outputs one =
        cluster::run_batch(simulations, seeds, {.threads = 1, .keep_requests = keep});
    const Outputs four =
        cluster::run_batch(simulations, seeds, {.threads = 4, .keep_requests = keep});
    check(one.size() == simulations.size() * seeds.size() && four.size() == one.size(),
          "an output per run");
    for (std::size_t i = 0; i < one.size(); ++i) {
      check(one[i] && four[i], "all runs were made");
      check_equal(*one[i], *four[i]);
      const cluster::Simulation& simulation = simulations[i / seeds.size()];
      check_equal(*four[i],
                  cluster::run(simulation, seeds[i % seeds.size()], {.keep_requests = keep}));
      check((four[i]->record != nullptr) == (keep && !simulation.metrics.streaming), "records");
    }
  }
}

void runs_without_random_streams_are_made_once() {
  cluster::Simulation constant = small(300, 2);
  auto& client = std::get<workload::Synthetic>(constant.workload).clients[0];
  client.arrivals = workload::Constant{};
  client.output_tokens = workload::Fixed{};
  const std::vector<cluster::Simulation> simulations{small(300, 2), constant};
  const std::vector<std::uint64_t> seeds{3, 0, 7};
  std::size_t done = 0;
  const Outputs outputs = cluster::run_batch(
      simulations, seeds, {.threads = 2, .progress = [&](std::size_t runs) { done = runs; }});
  check(done == simulations.size() * seeds.size(), "every seed is counted");
  check(outputs[0] != outputs[1] && outputs[1] != outputs[2], "a run per seed");
  check(outputs[3] && outputs[3] == outputs[4] && outputs[4] == outputs[5], "one run for all");
  check_equal(*outputs[5], cluster::run(constant, seeds[2], {.keep_requests = false}));
}

void caller_can_end_a_batch() {
  const std::vector<cluster::Simulation> large(8, small(1'000'000, 1));
  const std::vector<std::uint64_t> seeds{0};
  int asked = 0;
  const Outputs outputs =
      cluster::run_batch(large, seeds, {.threads = 2, .interrupted = [&] { return ++asked > 0; }});
  check(outputs.size() == large.size(), "a place per run");
  check(asked >= 1, "the caller was asked");
  for (const auto& output : outputs) check(!output, "no run came to its end");

  check_throws<std::runtime_error>(
      [&] {
        const cluster::BatchOptions options{
            .threads = 2, .progress = [](std::size_t) { throw std::runtime_error("enough"); }};
        cluster::run_batch(large, seeds, options);
      },
      "an exception of progress");
}

void failing_run_ends_the_batch() {
  std::vector<cluster::Simulation> simulations(4, small(300, 1));
  simulations[2].workload = workload::Trace{};
  const std::vector<std::uint64_t> seeds{0, 1};
  check_throws<sim::ConfigError>([&] { cluster::run_batch(simulations, seeds, {.threads = 4}); },
                                 "an empty trace");
}

void nothing_to_run() {
  const std::vector<std::uint64_t> seeds{0};
  check(cluster::run_batch({}, seeds, {.threads = 4}).empty(), "no simulations, no outputs");
}

}  // namespace

CASES(outputs_do_not_depend_on_threads, runs_without_random_streams_are_made_once,
      caller_can_end_a_batch, failing_run_ends_the_batch, nothing_to_run);
