#include "cluster/step_costs.h"

#include <algorithm>
#include <memory>
#include <variant>

#include "instance/latency/latency.h"

namespace spillway::cluster {

namespace {

// Of a usual request, where a step time is not linear.
constexpr std::int64_t kPromptTokens = 512;
constexpr std::int64_t kContextTokens = 512;
constexpr std::int64_t kDecodes = 32;

instance::StepLoad decodes(std::int64_t requests) {
  return {.decode_requests = requests,
          .context_tokens = requests * kContextTokens,
          .decode_context_tokens = requests * kContextTokens};
}

gateway::StepCosts costs_of(const instance::Linear& c) {
  return {c.beta0_us, c.beta_prefill_us, c.beta_decode_us + c.beta_context_us * kContextTokens};
}
gateway::StepCosts costs_of(const instance::Jittered& jittered) { return costs_of(jittered.mean); }
gateway::StepCosts costs_of(const auto& latency) {
  const std::unique_ptr<instance::LatencyModel> model = make(latency, 0, sim::InstanceId{});
  const double one_us = model->step_us(decodes(1));
  const double decode_us =
      std::max(model->step_us(decodes(kDecodes)) - one_us, 0.0) / (kDecodes - 1);
  const double empty_us = std::max(one_us - decode_us, 0.0);
  const double prompt_us = model->step_us({.prefill_tokens = kPromptTokens,
                                           .prefill_requests = 1,
                                           .prefill_attention = kPromptTokens * kPromptTokens,
                                           .prefill_squares = kPromptTokens * kPromptTokens});
  return {empty_us, std::max(prompt_us - empty_us, 0.0) / kPromptTokens, decode_us};
}

}  // namespace

gateway::StepCosts step_costs(const Simulation& simulation) {
  const bool is_read = std::ranges::any_of(simulation.gateway.admission, [](const auto& policy) {
    return std::holds_alternative<gateway::PredictiveTtft>(policy);
  });
  if (!is_read) return {};
  gateway::StepCosts sum{0, 0, 0};
  double instances = 0;
  for (const instance::InstanceGroup& group : simulation.instances) {
    if (!std::holds_alternative<instance::StepLoop>(group.plant)) continue;
    const auto count = static_cast<double>(group.count);
    const gateway::StepCosts own =
        std::visit([](const auto& latency) { return costs_of(latency); }, group.latency);
    sum.empty_us += count * own.empty_us;
    sum.prompt_token_us += count * own.prompt_token_us;
    sum.decode_us += count * own.decode_us;
    instances += count;
  }
  if (instances == 0) return {};
  return {sum.empty_us / instances, sum.prompt_token_us / instances, sum.decode_us / instances};
}

}  // namespace spillway::cluster
