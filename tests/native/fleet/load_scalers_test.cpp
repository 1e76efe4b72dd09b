// The numbers of instances that the rules without memory ask for.
#include "fleet/load_scalers.h"

#include <cstdint>
#include <vector>

#include "check.h"

using namespace spillway;
using fleet::FleetLoad;
using fleet::InstanceLoad;
using fleet::PlannerScaler;
using fleet::WvaScaler;

namespace {

// Instances of 10,000 KV tokens, of which 8,000 are supply.
FleetLoad of_kv_memory(std::vector<double> utilizations, double waiting_each = 0) {
  FleetLoad load;
  for (const double utilization : utilizations) {
    load.instances.push_back({.waiting = waiting_each,
                              .kv_utilization = utilization,
                              .max_num_seqs = 16,
                              .kv_capacity_tokens = 10'000});
  }
  return load;
}

void wva_adds_what_covers_the_demand() {
  const WvaScaler config{.queued_tokens = 500, .max_instances = 9};
  check(poll(config, of_kv_memory({0.64}), 1) == 1, "6,400 ÷ 0.8 is the supply");
  check(poll(config, of_kv_memory({0.65}), 1) == 2, "more is not");
  check(poll(config, of_kv_memory({0.9}, 10), 1) == 3, "14,000 ÷ 0.8 take 2.2 instances");
  check(poll(config, of_kv_memory({0.9}, 10), 3) == 3, "two of them are starting");
  check(poll(config, of_kv_memory({0.9}, 1000), 1) == 9, "at most");
  FleetLoad queued = of_kv_memory({0.0});
  queued.queued = 20;
  check(poll(config, queued, 1) == 2, "requests at the gateway count");
}

void wva_removes_whole_instances() {
  const WvaScaler config{.max_instances = 9};
  // A demand of 3,000 must stay below 0.4 of the supply: 7,500 of it.
  check(poll(config, of_kv_memory({0.1, 0.1, 0.1}), 3) == 1, "16,500 are spare");
  check(poll(config, of_kv_memory({0.2, 0.2}), 2) == 2, "6,000 are spare: less than one");
  check(poll(config, of_kv_memory({0, 0, 0}), 3) == 1, "the least");
  check(poll(WvaScaler{.min_instances = 0}, of_kv_memory({0, 0}), 2) == 0, "or none");
}

void planner_follows_all_instances() {
  const PlannerScaler config{.prefill_tokens_threshold = 1000, .max_instances = 3};
  FleetLoad load;
  load.instances = {{.prefill_tokens = 1001}, {.kv_utilization = 0.81}};
  check(poll(config, load, 2) == 3, "each is above one threshold");
  load.instances[0].prefill_tokens = 1000;
  check(poll(config, load, 2) == 2, "one is not");
  check(poll(config, load, 3) == 3, "an instance is starting");
  load.instances = {{.prefill_tokens = 800}, {.kv_utilization = 0.64}};
  check(poll(config, load, 2) == 1, "both have room");
  load.instances[1].kv_utilization = 0.65;
  check(poll(config, load, 2) == 2, "one has none");
}

void planner_by_latency_follows_all_instances_in_one_latency() {
  const PlannerScaler config{.optimization_target = fleet::PlannerTarget::sla,
                             .prefill_tokens_threshold = 0,
                             .ttft_s = 1,
                             .itl_s = 0.1,
                             .max_instances = 3};
  FleetLoad load;
  load.instances = {{.prefill_tokens = 9, .ttft_s = 1.1}, {.prefill_tokens = 9, .itl_s = 0.11}};
  check(poll(config, load, 2) == 2, "each misses another one, and has few tokens");
  load.instances[1].ttft_s = 1.1;
  check(poll(config, load, 2) == 3, "both miss the TTFT");
  load.scaled = fleet::Scaled::decode;
  check(poll(config, load, 2) == 2, "which decode instances do not have");
  load.instances = {{.ttft_s = 9, .itl_s = 0.08}, {.ttft_s = 9, .itl_s = 0.08}};
  check(poll(config, load, 2) == 1, "both have room");
  load.instances[0].itl_s = 0.081;
  check(poll(config, load, 2) == 2, "one has none");
}

void a_request_starts_an_empty_fleet() {
  FleetLoad load;
  check(poll(WvaScaler{.min_instances = 0}, load, 0) == 0, "nothing waits");
  check(poll(PlannerScaler{.min_instances = 0}, load, 0) == 0, "nothing waits");
  load.queued = 1;
  check(poll(WvaScaler{.min_instances = 0}, load, 0) == 1, "one");
  check(poll(PlannerScaler{.min_instances = 0}, load, 0) == 1, "one");
}

}  // namespace

CASES(wva_adds_what_covers_the_demand, wva_removes_whole_instances, planner_follows_all_instances,
      planner_by_latency_follows_all_instances_in_one_latency, a_request_starts_an_empty_fleet);
