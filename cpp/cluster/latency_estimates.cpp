#include "cluster/latency_estimates.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "instance/latency/latency.h"

namespace spillway::cluster {

namespace {

std::unique_ptr<instance::LatencyModel> without_noise(const instance::Latency& latency) {
  if (const auto* jittered = std::get_if<instance::Jittered>(&latency)) {
    return make(jittered->mean, 0, sim::InstanceId{});
  }
  return std::visit([](const auto& model) { return make(model, 0, sim::InstanceId{}); }, latency);
}

// An equal share of each rank, rounded up.
std::int64_t share_of(double total, std::int64_t ranks) {
  return static_cast<std::int64_t>(std::ceil(total / static_cast<double>(ranks)));
}

}  // namespace

LatencyEstimates::LatencyEstimates(const Simulation& simulation) {
  for (const instance::InstanceGroup& group : simulation.instances) {
    std::unique_ptr<instance::LatencyModel> latency = without_noise(group.latency);
    const bool in_step = group.output_overhead == instance::OutputOverhead::in_step;
    const double overhead_s = in_step ? latency->output_us() / 1e6 : 0;
    group_of_.insert(group_of_.end(), static_cast<std::size_t>(group.count), servers_.size());
    servers_.push_back({.latency = std::move(latency),
                        .overhead_s = overhead_s,
                        .ranks = group.data_parallel_size,
                        .max_num_batched_tokens = group.max_num_batched_tokens,
                        .kv_tokens = group.num_kv_blocks * group.block_size_tokens,
                        .block_size_tokens = group.block_size_tokens});
  }
  seen_.resize(group_of_.size());
}

LatencyEstimates::~LatencyEstimates() = default;

void LatencyEstimates::sent(sim::InstanceId id, std::int64_t input_tokens) {
  seen_[id.index()].sent_tokens += input_tokens;
  ++requests_;
  input_tokens_ += input_tokens;
}

void LatencyEstimates::estimate(sim::InstanceId id, const signals::InstanceSignal& reported,
                                const instance::Counters& counters, fleet::Scaled scaled,
                                fleet::InstanceLoad& load) {
  const Server& server = servers_[group_of_[id.index()]];
  const std::int64_t per_step = prompt_tokens_per_step(server, id, counters);
  const std::int64_t mean_prompt = requests_ > 0 ? input_tokens_ / requests_ : 0;
  const std::int64_t running = share_of(reported.running, server.ranks);
  const auto used =
      static_cast<std::int64_t>(reported.kv_utilization * static_cast<double>(server.kv_tokens));

  // Where prompts are computed alone, no request of the batch decodes.
  const Batch decoding = scaled == fleet::Scaled::prefill ? Batch{} : Batch{running, used, 0};
  const std::int64_t uncomputed =
      share_of(static_cast<double>(reported.prefill_tokens), server.ranks) + mean_prompt;
  load.ttft_s = prompts_s(server, uncomputed, decoding);

  const std::int64_t each = running > 0 ? used / running : mean_prompt;
  const std::int64_t more = share_of(reported.waiting, server.ranks) + 1;
  const Batch next{.requests = running + more,
                   .context_tokens = used + more * each,
                   .prompt_tokens = scaled == fleet::Scaled::all ? per_step : 0};
  load.itl_s = step_s(server, next) + server.overhead_s;
}

// Of a rank, on average since the last estimate. What the cache had was not computed.
std::int64_t LatencyEstimates::prompt_tokens_per_step(const Server& server, sim::InstanceId id,
                                                      const instance::Counters& counters) {
  Seen& seen = seen_[id.index()];
  const std::int64_t steps = counters.steps - seen.steps;
  const std::int64_t found = (counters.kv_hits - seen.kv_hits) * server.block_size_tokens;
  const std::int64_t computed = std::max<std::int64_t>(seen.sent_tokens - found, 0);
  seen = {.steps = counters.steps, .kv_hits = counters.kv_hits};
  if (steps <= 0) return 0;
  return std::min(computed / steps, server.max_num_batched_tokens);
}

double LatencyEstimates::step_s(const Server& server, const Batch& batch) {
  const std::int64_t prompt = batch.prompt_tokens;
  const double step_us = server.latency->step_us({.prefill_tokens = prompt,
                                                  .prefill_requests = prompt > 0,
                                                  .decode_requests = batch.requests,
                                                  .context_tokens = batch.context_tokens,
                                                  .decode_context_tokens = batch.context_tokens,
                                                  .prefill_attention = prompt * prompt,
                                                  .prefill_squares = prompt * prompt});
  return step_us / 1e6;
}

// In chunks that leave the batch its decodes. Without any the last step alone emits a token.
double LatencyEstimates::prompts_s(const Server& server, std::int64_t tokens, Batch decoding) {
  const std::int64_t room =
      std::max<std::int64_t>(server.max_num_batched_tokens - decoding.requests, 1);
  const auto chunk_s = [&](std::int64_t chunk) {
    decoding.prompt_tokens = chunk;
    return step_s(server, decoding);
  };
  const std::int64_t full = tokens / room;
  const std::int64_t rest = tokens % room;
  const std::int64_t steps = full + (rest > 0 ? 1 : 0);
  const std::int64_t emitting = decoding.requests > 0 ? steps : std::min<std::int64_t>(steps, 1);
  return (full > 0 ? static_cast<double>(full) * chunk_s(room) : 0) +
         (rest > 0 ? chunk_s(rest) : 0) + static_cast<double>(emitting) * server.overhead_s;
}

}  // namespace spillway::cluster
