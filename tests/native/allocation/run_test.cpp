// Once a run has reached its working size it allocates nothing: no event, no request and no step
// costs an allocation.
//
// With random arrivals and lengths, high-water marks of queues and batches and the table of
// distinct gaps between tokens may still grow. All of them grow by doubling, so `kDoublings`
// allocations are allowed then (a run of twice the length makes about a dozen more); one per
// request, preemption or step would be thousands.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "allocation/counting.h"
#include "blis_server.h"
#include "check.h"
#include "cluster/run.h"

using namespace spillway;

namespace {

// Samples. A run is asked after 64 events, then after twice as many each time, up to every 2^14.
constexpr std::size_t kWarmUp = 12;
constexpr std::size_t kFewest = 24;
constexpr std::int64_t kDoublings = 128;

struct Sampled {
  cluster::Output output;
  std::vector<std::int64_t> samples;

  std::int64_t growth() const { return samples.back() - samples[kWarmUp - 1]; }
};

Sampled run_sampled(const cluster::Simulation& simulation, bool keep_requests = true) {
  Sampled sampled;
  sampled.samples.reserve(100'000);
  const auto sample = [&] {
    // Allocates nothing itself.
    if (sampled.samples.size() == sampled.samples.capacity()) std::abort();
    sampled.samples.push_back(allocations());
    return false;
  };
  // Generated before the run, so that all samples are of the run.
  const auto requests = cluster::offered_requests(simulation, 1);
  sampled.output = cluster::run(
      simulation, 1, {.requests = requests, .keep_requests = keep_requests, .interrupted = sample});
  return sampled;
}

void check_steady(const std::string& name, const Sampled& sampled, std::int64_t allowed) {
  check(sampled.samples.size() >= kFewest, name + ": the run is too short");
  std::printf("%s: %zu samples, %lld allocations after the warm-up\n", name.c_str(),
              sampled.samples.size(), static_cast<long long>(sampled.growth()));
  check(sampled.growth() <= allowed, name + ": allowed are " + std::to_string(allowed));
}

void allocations_are_counted() {
  const std::int64_t before = allocations();
  const std::vector<int> some(100);
  struct alignas(128) Wide {
    char bytes[128];
  };
  const std::vector<Wide> aligned(2);
  check(allocations() == before + 2 && !some.empty() && !aligned.empty(), "two allocations");
}

// Eight instances below their capacity. Constant lengths: few gaps are distinct.
cluster::Simulation constant_lengths(std::int64_t num_requests) {
  cluster::Simulation simulation;
  workload::Synthetic synthetic;
  synthetic.requests_per_s = 80;
  synthetic.num_requests = num_requests;
  simulation.workload = synthetic;
  simulation.instances = {blis_server()};
  simulation.instances[0].count = 8;
  return simulation;
}

// Lengths of all sizes, too little KV memory, and queues in front of and in the engines.
cluster::Simulation tight_memory(std::int64_t num_requests) {
  cluster::Simulation simulation;
  workload::Synthetic synthetic;
  synthetic.requests_per_s = 20;
  synthetic.num_requests = num_requests;
  synthetic.clients.clear();
  const char* classes[] = {"critical", "standard", "sheddable", "batch"};
  for (std::size_t i = 0; i < std::size(classes); ++i) {
    workload::Client client;
    client.name = "client " + std::to_string(i);
    client.tenant = "tenant " + std::to_string(i);
    client.slo_class = classes[i];
    client.input_tokens = workload::Lognormal{.mu = 5.5, .sigma = 1, .max_tokens = 3000};
    client.output_tokens = workload::Lognormal{.mu = 4, .sigma = 1, .max_tokens = 400};
    synthetic.clients.push_back(client);
  }
  simulation.workload = synthetic;
  simulation.gateway.limit = {gateway::FixedLimit{.max_in_flight = 120}};
  instance::InstanceGroup group = blis_server();
  group.count = 3;
  group.max_num_seqs = 32;
  group.max_num_batched_tokens = 512;
  group.num_kv_blocks = 300;
  group.scheduler = instance::PriorityFcfs{};
  simulation.instances = {group};
  return simulation;
}

std::int64_t preemptions(const cluster::Output& output) {
  std::int64_t sum = 0;
  for (const cluster::InstanceReport& instance : output.instances) sum += instance.preemptions;
  return sum;
}

void constant_lengths_allocate_nothing() {
  cluster::Simulation simulation = constant_lengths(120'000);
  check_steady("constant lengths", run_sampled(simulation), kDoublings);
  std::get<workload::Synthetic>(simulation.workload).clients[0].arrivals = workload::Constant{};
  check_steady("constant lengths and gaps", run_sampled(simulation), 0);
  simulation.metrics.streaming = true;
  check_steady("streaming, constant lengths and gaps", run_sampled(simulation, false), 0);
}

void tight_memory_allocates_nothing() {
  const Sampled sampled = run_sampled(tight_memory(100'000));
  check(preemptions(sampled.output) > 1000, "memory was short");
  check_steady("tight memory", sampled, kDoublings);
}

void latencies_that_are_reported_allocate_nothing() {
  cluster::Simulation simulation = tight_memory(100'000);
  simulation.metrics.accounting = metrics::Accounting::blis;
  simulation.instances[0].completion = instance::Completion::step_start;
  simulation.instances[0].preemption = instance::Preemption::restart;
  check_steady("reported latencies", run_sampled(simulation), kDoublings);
}

void streaming_allocates_nothing() {
  cluster::Simulation simulation = constant_lengths(120'000);
  simulation.metrics.streaming = true;
  check_steady("streaming, constant lengths", run_sampled(simulation, false), kDoublings);

  simulation = tight_memory(100'000);
  simulation.metrics.streaming = true;
  const Sampled sampled = run_sampled(simulation, false);
  check(preemptions(sampled.output) > 1000, "memory was short");
  check_steady("streaming, tight memory", sampled, kDoublings);
}

void shared_processors_allocate_nothing() {
  cluster::Simulation simulation = constant_lengths(120'000);
  simulation.metrics.streaming = true;
  // With the second value, first tokens are due long after their requests have completed.
  for (const double ttft_s : {0.1, 1e6}) {
    simulation.instances[0].plant = instance::ProcessorSharing{
        .concurrency = {0, 100}, .e2e_s = {1, 5}, .ttft_s = {0.1, ttft_s}};
    check_steady("processor sharing", run_sampled(simulation, false), kDoublings);
  }
}

}  // namespace

CASES(allocations_are_counted, constant_lengths_allocate_nothing, tight_memory_allocates_nothing,
      latencies_that_are_reported_allocate_nothing, streaming_allocates_nothing,
      shared_processors_allocate_nothing);
