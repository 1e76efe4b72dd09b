// The latencies that a planner estimates, by hand.
#include "cluster/latency_estimates.h"

#include <cmath>

#include "check.h"

using namespace spillway;
using cluster::LatencyEstimates;
using fleet::InstanceLoad;
using fleet::Scaled;

namespace {

constexpr sim::InstanceId kFirst{};

// Steps of 1 ms, 10 us per token of a prompt, 100 us per decode, 1 us per token of context.
constexpr instance::Linear kSteps{.alpha_output_us = 0,
                                  .beta0_us = 1000,
                                  .beta_prefill_us = 10,
                                  .beta_decode_us = 100,
                                  .beta_context_us = 1};

cluster::Simulation with_server(instance::Latency latency, std::int64_t ranks = 1) {
  cluster::Simulation simulation;
  instance::InstanceGroup& group = simulation.instances.front();
  group.latency = latency;
  group.data_parallel_size = ranks;
  group.max_num_batched_tokens = 100;
  group.num_kv_blocks = 100;
  group.block_size_tokens = 16;
  return simulation;
}

// A prompt of 50 tokens, of which one block was cached, was sent; ten steps were made.
InstanceLoad loaded(LatencyEstimates& estimates, Scaled scaled) {
  const signals::InstanceSignal reported{
      .waiting = 2, .running = 4, .kv_utilization = 0.25, .prefill_tokens = 210};
  InstanceLoad load;
  estimates.sent(kFirst, 50);
  estimates.estimate(kFirst, reported, {.steps = 10, .kv_hits = 1}, scaled, load);
  return load;
}

bool is_near(double a, double b) { return std::abs(a - b) < 1e-12; }

void check_latencies(const InstanceLoad& load, double ttft_s, double itl_s) {
  check(is_near(load.ttft_s, ttft_s), "TTFT");
  check(is_near(load.itl_s, itl_s), "ITL");
}

void an_idle_server_has_a_step_of_one() {
  LatencyEstimates estimates(with_server(kSteps));
  InstanceLoad load;
  estimates.estimate(kFirst, {}, {}, Scaled::all, load);
  check_latencies(load, 0, 0.0011);
}

void prompts_wait_for_each_other_and_share_steps_with_decodes() {
  LatencyEstimates estimates(with_server(kSteps));
  // 260 tokens: twice 96 beside four decodes with 400 tokens of context, then 68. A step of seven
  // decodes with 700, and of 34 ÷ 10 tokens of prompts.
  check_latencies(loaded(estimates, Scaled::all), 2 * 0.00276 + 0.00248, 0.00243);
  InstanceLoad load;
  estimates.estimate(kFirst, {}, {.steps = 10, .kv_hits = 1}, Scaled::all, load);
  check_latencies(load, 0.0015, 0.00115);
}

void pools_do_one_of_both() {
  LatencyEstimates prefill(with_server(kSteps));
  check(is_near(loaded(prefill, Scaled::prefill).ttft_s, 2 * 0.002 + 0.0016), "no decodes");
  LatencyEstimates decode(with_server(kSteps));
  check(is_near(loaded(decode, Scaled::decode).itl_s, 0.0024), "no prompts");
}

void ranks_share_the_requests() {
  LatencyEstimates estimates(with_server(kSteps, 2));
  // 155 tokens beside two decodes; four decodes with 800 tokens.
  check_latencies(loaded(estimates, Scaled::decode), 0.0016 + 98e-5 + 0.0016 + 57e-5, 0.0022);
}

void noise_and_overheads_outside_the_step_are_left_out() {
  instance::Linear costly = kSteps;
  costly.alpha_output_us = 500;
  for (const auto overhead :
       {instance::OutputOverhead::in_step, instance::OutputOverhead::reported}) {
    cluster::Simulation simulation = with_server(instance::Jittered{.mean = costly, .cv = 0.5});
    simulation.instances.front().output_overhead = overhead;
    LatencyEstimates estimates(simulation);
    InstanceLoad load;
    estimates.estimate(kFirst, {}, {}, Scaled::all, load);
    const bool in_step = overhead == instance::OutputOverhead::in_step;
    check(is_near(load.itl_s, in_step ? 0.0016 : 0.0011), "the mean step");
  }
}

}  // namespace

CASES(an_idle_server_has_a_step_of_one, prompts_wait_for_each_other_and_share_steps_with_decodes,
      pools_do_one_of_both, ranks_share_the_requests,
      noise_and_overheads_outside_the_step_are_left_out);
