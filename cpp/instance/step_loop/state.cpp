#include "instance/step_loop/state.h"

#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "sim/error.h"

namespace spillway::instance {

namespace {

std::int64_t cap(std::int64_t tokens) {
  return tokens > 0 ? tokens : std::numeric_limits<std::int64_t>::max();
}

bool has_eagle(const InstanceGroup& group) {
  return group.speculative_decoding.num_drafts > 0 &&
         group.speculative_decoding.method == DraftMethod::eagle;
}

bool takes_draft_slots(const InstanceGroup& group, DraftSlots slots) {
  return group.speculative_decoding.num_drafts > 0 &&
         group.speculative_decoding.method == DraftMethod::draft_model &&
         group.engine_rules.draft_slots == slots;
}

/// A latency model whose steps take a factor longer, which may change.
class Slowed final : public LatencyModel {
 public:
  Slowed(std::unique_ptr<const LatencyModel> model, const double& factor)
      : model_(std::move(model)), factor_(factor) {}

  LatencyBasis basis() const override { return model_->basis(); }
  double step_us(const StepLoad& load) const override { return model_->step_us(load) * factor_; }
  double entry_us(std::int64_t input_tokens) const override {
    return model_->entry_us(input_tokens);
  }
  double output_us() const override { return model_->output_us(); }

 private:
  std::unique_ptr<const LatencyModel> model_;
  const double& factor_;
};

std::unique_ptr<const LatencyModel> slowed(std::unique_ptr<const LatencyModel> model,
                                           const double* factor) {
  if (!factor) return model;
  return std::make_unique<const Slowed>(std::move(model), *factor);
}

Stepping stepping_of(const Environment& environment, const InstanceGroup& group,
                     const LatencyModel& latency, bool orders_anew) {
  if (environment.reference) return Stepping::reference;
  if (environment.lockstep || group.prefill_schedule_interval > 1) return Stepping::plain;
  if (group.speculative_decoding.num_drafts > 0 || orders_anew) return Stepping::plain;
  return latency.basis() == LatencyBasis::step ? Stepping::plain : Stepping::jumps;
}

}  // namespace

EngineSettings::EngineSettings(const InstanceGroup& group, std::uint32_t engine,
                               const Environment& environment)
    : requests(environment.requests),
      quantum(environment.quantum_ns),
      max_num_seqs(group.max_num_seqs),
      max_admitting_seqs(
          std::min(group.max_num_seqs, group.max_num_active_seqs.value_or(group.max_num_seqs))),
      max_num_batched_tokens(group.max_num_batched_tokens),
      prefill_cap(cap(group.long_prefill_token_threshold)),
      varies_cap(
          group.long_prefill_token_threshold > 0 &&
          (group.long_prefill_token_threshold_adaptive || !group.engine_rules.caps_lone_requests)),
      adapts_cap(group.long_prefill_token_threshold_adaptive),
      chunks_prompts(group.chunked_prefill),
      prefill_interval(group.prefill_schedule_interval),
      num_drafts(group.speculative_decoding.num_drafts),
      lookahead(group.speculative_decoding.method == DraftMethod::ngram ? 0 : num_drafts),
      tokens_behind_block(
          has_eagle(group) && group.engine_rules.eagle_blocks == EagleBlocks::next_token ? 1 : 0),
      slots_of_drafts(takes_draft_slots(group, DraftSlots::all_seats) ? group.max_num_seqs : 0),
      slots_per_part(takes_draft_slots(group, DraftSlots::scheduled) ? 1 : 0),
      acceptance(group.speculative_decoding.acceptance),
      seed(environment.seed),
      rules(group.engine_rules),
      has_special_rules(rules != EngineRules{} || varies_cap || !chunks_prompts ||
                        prefill_interval > 1 || num_drafts > 0 || environment.step_logs ||
                        environment.states.keeps_cached || environment.legs ||
                        environment.states.resumes),
      has_legs(environment.legs != nullptr),
      resumptions(environment.states.resumes ? &environment.states.resumptions : nullptr),
      max_model_len(cap(group.max_model_len)),
      completion(group.completion),
      preemption(group.preemption),
      scheduler(std::visit([&](const auto& c) { return make(c, environment.requests); },
                           group.scheduler)),
      preempting(scheduler->preemption()),
      prefix_order(scheduler->prefix_order()),
      slowness(environment.may_fail ? std::make_unique<double>(1) : nullptr),
      latency(slowed(
          std::visit(
              [&](const auto& c) { return make(c, environment.seed, sim::InstanceId{engine}); },
              group.latency),
          slowness.get())),
      stepping(stepping_of(environment, group, *latency, prefix_order.has_value())),
      keeps_sums(!environment.reference && latency->basis() != LatencyBasis::step &&
                 num_drafts == 0),
      plans_ahead(group.async_scheduling),
      durations_vary(latency->basis() == LatencyBasis::context),
      step_overhead_us(
          (group.output_overhead == OutputOverhead::in_step ? latency->output_us() : 0) +
          (num_drafts > 0 ? group.speculative_decoding.draft_us : 0)),
      reports(environment.reports_latencies),
      reported_overhead(group.output_overhead == OutputOverhead::in_step
                            ? sim::Time{0}
                            : quantum.truncate_us(latency->output_us())) {}

EngineState::EngineState(const EngineSettings& given, const InstanceGroup& group,
                         bool meters_tokens)
    : settings(given),
      memory(group.kv_cache, group.engine_rules, has_eagle(group), group.num_kv_blocks,
             group.block_size_tokens, given.requests),
      waiting(given.scheduler->sorts(), given.requests),
      decoders(given.requests, memory.block_size(), meters_tokens),
      prefill_cap(given.prefill_cap),
      emitted_by_group(meters_tokens ? given.requests.num_groups() : 0, 0) {}

std::int64_t share_with_drafts(const EngineState& s, const Slot& slot, std::int64_t budget) {
  if (slot.is_finishing() || (s.pauses_prompts && slot.in_prompt)) return 0;
  const std::int64_t need = next_need(slot) + (slot.in_prompt ? 0 : s.settings.num_drafts);
  const std::int64_t room = s.settings.max_model_len - 1 - (slot.computed + slot.tokens);
  return std::max<std::int64_t>(
      0, std::min({need, s.prefill_cap, budget - s.settings.slots_per_part, room}));
}

void take_late_blocks(EngineState& s) {
  if (!s.takes_late) return;
  s.memory.take(s.memory.free() - free_blocks(s));
  s.takes_late = false;
}

KvCounts kv_counts(const EngineState& s) {
  KvCounts counts = s.memory.counts();
  const std::int64_t free = free_blocks(s);
  counts.misses += s.memory.free() - free;
  counts.most_in_use = std::max(counts.most_in_use, s.memory.total() - free);
  return counts;
}

void check_memory(const EngineState& s, sim::InstanceId id) {
  std::int64_t held = decoders_blocks(s) + s.memory.num_named_in_use();
  for (const Decoders::Member& member : s.decoders.members()) {
    held += s.memory.own_blocks({.prefix = member.prefix});
  }
  for (const Slot& slot : s.slots) held += s.memory.own_blocks(slot.holding);
  for (const std::vector<Prompt>* prompts : {&s.unread, &s.receiving, &s.ready}) {
    for (const Prompt& prompt : *prompts) held += s.memory.own_blocks(prompt.holding);
  }
  const std::int64_t free = free_blocks(s);
  sim::require(held + free == s.memory.total() && free >= 0,
               "instance " + std::to_string(id.value) + " holds " + std::to_string(held) +
                   " KV blocks and has " + std::to_string(free) + " free of " +
                   std::to_string(s.memory.total()));
}

}  // namespace spillway::instance
