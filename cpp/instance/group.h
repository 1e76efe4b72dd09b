#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "instance/engine_rules.h"
#include "instance/front_end.h"
#include "instance/ingress/policies.h"
#include "instance/kv_cache/config.h"
#include "instance/latency/policies.h"
#include "instance/plant/policies.h"
#include "instance/scheduler/policies.h"
#include "instance/speculation.h"
#include "sim/error.h"
#include "sim/randomness.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::instance {

/// When the effects of a step (tokens, completions, released memory, counters) take place.
enum class Completion : std::uint8_t { step_end, step_start };
/// The treatment of a preempted request's output tokens.
enum class Preemption : std::uint8_t { keep_emitted, restart };
/// Where the cost of delivering tokens counts.
enum class OutputOverhead : std::uint8_t { in_step, reported };
/// What the instances of a group compute: whole requests, or one of the two legs of a request whose
/// prompt is computed elsewhere.
enum class Role : std::uint8_t { both, prefill, decode };

/// A state of a rank's batch.
struct BatchState {
  double running_requests = 0;
  double kv_tokens = 0;

  static constexpr std::string_view type_name = "BatchState";
  static constexpr std::string_view doc = "A state of a rank's batch.";
  static void fields(auto field) {
    field("running_requests", &BatchState::running_requests, "Requests in the batch.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("kv_tokens", &BatchState::kv_tokens, "Tokens that the KV blocks in use can hold.")
        .unit("tokens")
        .range(sim::between(0, 1e15));
  }
};

/// A group of identical instances.
struct InstanceGroup {
  std::int64_t count = 1;
  double cost_per_hour = 0;
  std::vector<std::string> models;
  Role role = Role::both;
  std::string transfer_domain;
  std::int64_t data_parallel_size = 1;
  bool lockstep_ranks = false;
  std::optional<double> notices_departure_after_s = 0;
  FrontEnd front_end;
  Ingress ingress = Open{};
  Plant plant = StepLoop{};
  std::int64_t max_num_seqs = 1024;
  std::int64_t max_num_batched_tokens = 8192;
  std::int64_t long_prefill_token_threshold = 0;
  bool long_prefill_token_threshold_adaptive = false;
  bool chunked_prefill = true;
  std::int64_t prefill_schedule_interval = 1;
  std::optional<std::int64_t> max_num_active_seqs;
  std::int64_t max_model_len = 131072;
  std::int64_t block_size_tokens = 16;
  std::int64_t num_kv_blocks = 26894;
  std::int64_t kv_bytes_per_token = 131072;
  KvCache kv_cache;
  Scheduler scheduler = Fcfs{};
  Latency latency = Roofline{};
  Completion completion = Completion::step_end;
  Preemption preemption = Preemption::keep_emitted;
  OutputOverhead output_overhead = OutputOverhead::in_step;
  bool async_scheduling = true;
  SpeculativeDecoding speculative_decoding;
  EngineRules engine_rules;
  std::string provenance;
  std::vector<BatchState> fitted_states;

  bool notices_late() const { return !notices_departure_after_s || *notices_departure_after_s > 0; }

  static constexpr std::string_view type_name = "InstanceGroup";
  static constexpr std::string_view doc =
      "A group of identical model servers. By default each is one H100 that serves Llama 3.1 8B "
      "with vLLM 0.19: what Server(model=\"llama-3.1-8b\", gpu=\"h100\") gives.";
  static void fields(auto field) {
    using G = InstanceGroup;
    field("count", &G::count, "Number of instances.")
        .unit("instances")
        .range(sim::between(1, 100000));
    field("cost_per_hour", &G::cost_per_hour,
          "What one of the instances costs per hour, in any currency, or its number of GPUs; only "
          "the figure cost depends on it.")
        .unit("1/h")
        .range(sim::between(0, 1e9));
    field("models", &G::models,
          "Names of the models that the instances serve; empty: any model. A request goes only to "
          "instances that serve the model that it names, or else its tenant (tenants[].model).");
    field("role", &G::role,
          "What the instances do for a request. both: all of it. If groups are prefill and decode, "
          "a request that disaggregation.decider sends to both has its prompt computed by an "
          "instance of the former, moved over disaggregation.link, and is continued by one of the "
          "latter, which serve other requests wholly. A group is then one or the other.");
    field("transfer_domain", &G::transfer_domain,
          "Name of the part of the fleet, such as a rack or a zone, within which prompts are to be "
          "moved (disaggregation.topology); empty: none.");
    field("data_parallel_size", &G::data_parallel_size,
          "Number of data-parallel ranks of an instance (vLLM --data-parallel-size). Each rank is "
          "a separate plant, with its own queue, batch and KV memory of the sizes given here. A "
          "request is assigned to a rank when it is routed: by a router that scores ranks "
          "(kv_cost), otherwise to the rank with the smallest 4 × waiting + running requests, the "
          "first of equals; a request that has not reached the engine's queue counts as waiting.")
        .unit("ranks")
        .range(sim::between(1, 1024));
    field("lockstep_ranks", &G::lockstep_ranks,
          "Whether the steps of the ranks start and end together, as in vLLM with a "
          "mixture-of-experts model and --data-parallel-size, with or without "
          "--enable-expert-parallel (v0.12: its expert layers synchronize all ranks in every "
          "forward pass). A common step lasts as long as the longest of the ranks' steps; a rank "
          "without requests takes part with a dummy batch, which takes no time of its own and is "
          "not counted as a step. No rank steps while none has a request. Requires plant: "
          "step_loop; with one rank it changes nothing.");
    field("notices_departure_after_s", &G::notices_departure_after_s,
          "Time after which an instance notices that the client of a request which has entered it "
          "has left (reaction.timeout_s and the like, or a cancellation). Until then it computes "
          "in vain: the request keeps its place, its memory and the gateway's permit, and "
          "another attempt of the client is served beside it. 0: at once; unset: never.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("front_end", &G::front_end, "Work on a request before the instance's ingress sees it.");
    field("ingress", &G::ingress,
          "Limits on the requests that enter an instance, in front of its engine's queue and for "
          "all its ranks together.");
    field("plant", &G::plant,
          "How an instance serves its requests. The settings below are those of step_loop; other "
          "plants have their own and ignore these, except that they report num_kv_blocks as free.");
    field("max_num_seqs", &G::max_num_seqs,
          "Maximum number of concurrent requests (vLLM --max-num-seqs).")
        .unit("requests")
        .range(sim::between(1, 1e6))
        .log_search(8, 1024);
    field("max_num_batched_tokens", &G::max_num_batched_tokens,
          "Token budget of one step (vLLM --max-num-batched-tokens).")
        .unit("tokens")
        .range(sim::between(1, 1e9))
        .log_search(256, 16384);
    field("long_prefill_token_threshold", &G::long_prefill_token_threshold,
          "Maximum number of prompt tokens of one request in one step (vLLM "
          "--long-prefill-token-threshold); 0: unlimited.")
        .unit("tokens")
        .range(sim::between(0, 1e9));
    field("long_prefill_token_threshold_adaptive", &G::long_prefill_token_threshold_adaptive,
          "Whether that threshold rises to max_num_batched_tokens divided by the requests in batch "
          "and queue (vLLM 0.31 or later).");
    field("chunked_prefill", &G::chunked_prefill,
          "Whether the prompt of a waiting request may be computed in parts. Otherwise a request "
          "joins only a step that has room for its whole prompt, and those behind it wait (vLLM "
          "--no-enable-chunked-prefill). A request that never fits is refused.");
    field("prefill_schedule_interval", &G::prefill_schedule_interval,
          "While requests decode, prompts with more than one token to be computed are admitted and "
          "continued in one of this many steps, unless the last step open to prompts left requests "
          "in the queue (vLLM 0.24 or later; recorded with 0.33); 1: in every step.")
        .unit("steps")
        .range(sim::between(1, 1e6));
    field("max_num_active_seqs", &G::max_num_active_seqs,
          "Number of requests in the batch from which none is admitted, if it is below "
          "max_num_seqs (vLLM 0.31 or later); unset: max_num_seqs alone.")
        .unit("requests")
        .range(sim::between(1, 1e6));
    field("max_model_len", &G::max_model_len,
          "Maximum number of tokens of prompt and output together (vLLM --max-model-len); 0: "
          "unlimited.")
        .unit("tokens")
        .range(sim::between(0, 1e9));
    field("block_size_tokens", &G::block_size_tokens, "Tokens per KV block (vLLM --block-size).")
        .unit("tokens")
        .range(sim::between(1, 1e6));
    field("num_kv_blocks", &G::num_kv_blocks, "Number of KV blocks of an instance.")
        .unit("blocks")
        .range(sim::between(1, 1e12));
    field(
        "kv_bytes_per_token", &G::kv_bytes_per_token,
        "KV memory of one token in all layers and on all GPUs of an instance, as Server states it: "
        "what is moved between the pools per token of a prompt.")
        .unit("bytes")
        .range(sim::between(1, 1e12));
    field("kv_cache", &G::kv_cache, "Reuse of KV blocks.");
    field("scheduler", &G::scheduler, "Order of the engine's waiting queue.");
    field("latency", &G::latency, "Model of the duration of a step.");
    field(
        "completion", &G::completion,
        "When the effects of a step take place: at its end, as in a real server, or at its start.");
    field("preemption", &G::preemption,
          "Treatment of a preempted request's output. keep_emitted: its KV is recomputed with the "
          "prompt; restart: the tokens are generated again.");
    field("output_overhead", &G::output_overhead,
          "Where the latency model's cost of delivering tokens counts. in_step: in the duration of "
          "every step that emits a token; reported: only in reported latencies.");
    field("async_scheduling", &G::async_scheduling,
          "Whether the batch of a step is fixed when the step before it starts, so that the "
          "accelerator never waits for the scheduler (vLLM --async-scheduling, its default in "
          "recent versions). An arrival then joins one step later, and a request that finishes "
          "keeps its seat and memory for one step more.");
    field("speculative_decoding", &G::speculative_decoding, "Speculative decoding.");
    field("engine_rules", &G::engine_rules,
          "Rules of the scheduler that differ between engines and their versions.");
    field("provenance", &G::provenance,
          "Where these settings come from, in words; written by Server. Runs do not depend on it.");
    field(
        "fitted_states", &G::fitted_states,
        "Corners of a convex polygon, counterclockwise: the states of a rank's batch to which the "
        "latency was fitted; written by spillway calibrate. A run counts how often its batches "
        "are outside (Result.fitted_states), and does not depend on it. Empty: not counted.");
  }
  /// Runs do not depend on what is said about the group, nor on the size of what is not moved.
  bool is_part_of_identity(std::string_view field) const {
    if (field == "kv_bytes_per_token") return role != Role::both;
    return field != "provenance" && field != "fitted_states";
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  bool draws() const { return std::holds_alternative<StepLoop>(plant) && sim::can_draw(latency); }
  /// An instance refuses requests that it could never hold.
  static constexpr std::array reasons{
      workload::Reason{"unservable",
                       workload::categories::kUnservable,
                       "prompt and output exceed num_kv_blocks or max_model_len (without "
                       "chunked_prefill also max_num_batched_tokens), so the request could never "
                       "finish",
                       {"instances[].num_kv_blocks", "instances[].max_model_len"}}};
};

/// The closed set of a worker's reasons: those of its engine, then those of its ingress.
inline constexpr auto kWorkerReasons = [] {
  constexpr auto of_ingress = workload::concat_reasons(std::type_identity<Ingress>{});
  std::array<workload::Reason, InstanceGroup::reasons.size() + of_ingress.size()> all{};
  std::size_t next = 0;
  for (const workload::Reason& reason : InstanceGroup::reasons) all[next++] = reason;
  for (const workload::Reason& reason : of_ingress) all[next++] = reason;
  return all;
}();

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::Completion> {
  static constexpr std::array<std::string_view, 2> names{"step_end", "step_start"};
};
template <>
struct spillway::sim::EnumNames<spillway::instance::Preemption> {
  static constexpr std::array<std::string_view, 2> names{"keep_emitted", "restart"};
};
template <>
struct spillway::sim::EnumNames<spillway::instance::OutputOverhead> {
  static constexpr std::array<std::string_view, 2> names{"in_step", "reported"};
};
template <>
struct spillway::sim::EnumNames<spillway::instance::Role> {
  static constexpr std::array<std::string_view, 3> names{"both", "prefill", "decode"};
};
