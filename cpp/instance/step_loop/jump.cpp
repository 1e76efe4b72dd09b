#include "instance/step_loop/jump.h"

#include <algorithm>
#include <limits>

namespace spillway::instance {

using sim::Time;

namespace {

/// Maximum number of steps of a jump whose steps differ in duration. Such a jump is evaluated step
/// by step, so a short one wastes less if an arrival cuts it.
constexpr std::int64_t kLongestUnevenJump = 256;

/// The end of every run.
constexpr Time kEndOfTime = sim::from_seconds(sim::kLongestSpan_s);

}  // namespace

Time duration_of(const EngineSettings& settings, const StepLoad& load, bool emits) {
  double step_us = settings.latency->step_us(load);
  if (emits) step_us += settings.step_overhead_us;
  return std::max(settings.quantum.span(), settings.quantum.truncate_us(step_us));
}

// All of these hold for each step of the jump:
// - every slot gets the same part of its prompt, and none completes it;
// - no decoder gets its last token, except in the last step (or in the one before, if effects
//   take place at the start of a step);
// - no request joins: the queue is empty, or its head found no seat, no budget or no memory,
//   none of which increases, and no request to preempt. An arrival that may join cuts the jump
//   short (`join_queue`);
// - there is memory for all tokens, so no request is preempted;
// - the duration of a step follows from sums over the batch, which are known in advance.
// An engine that plans ahead performs the last of these steps singly: the plan made at its start is
// another batch. The first plan of the jump has been made.
std::int64_t length_of_jump(const EngineState& s) {
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();
  if (!s.decoders.empty()) {
    steps = s.decoders.steps_to_finish();
    if (s.settings.completion == Completion::step_start) {
      steps = std::max<std::int64_t>(1, steps - 1);
    }
  }
  // Fully cached prompts occur only if the order of requests matters, and then every step is
  // performed singly.
  for (const Slot& slot : s.slots) {
    if (s.settings.plans_ahead && slot.planned != slot.tokens) return 1;
    if (slot.tokens == 0) continue;
    const std::int64_t need = slot.needed_tokens();
    if (slot.tokens == need || s.settings.varies_cap) return 1;
    steps = std::min(steps, (need - 1) / slot.tokens);
  }
  if (s.settings.plans_ahead) steps = std::max<std::int64_t>(1, steps - 1);
  // A prompt that fills shared blocks could unblock the head of the queue.
  if (is_blocked(s) && !s.slots.empty() && !s.memory.counts_only()) return 1;
  if (s.settings.durations_vary) steps = std::min(steps, kLongestUnevenJump);
  // If no request limits the jump, the end of the clock does. The product avoids the slow division.
  if (static_cast<double>(steps) * static_cast<double>(s.jump.duration.ns) >
      static_cast<double>(kEndOfTime.ns)) {
    steps = std::min(steps, 1 + kEndOfTime.ns / s.jump.duration.ns);
  }
  return steps > 1 && !s.takes_late ? 1 + steps_within_memory(s, steps - 1) : steps;
}

// If it could have an effect, steps do not take a block that is still cached: a blocked head of the
// queue may need fewer blocks once one is gone, and prompts register their blocks step by step.
std::int64_t steps_within_memory(const EngineState& s, std::int64_t most) {
  const std::int64_t free =
      is_blocked(s) || !s.slots.empty() ? s.memory.takeable_without_eviction() : s.memory.free();
  // A quick sufficient test: a token begins at most one block.
  std::int64_t tokens = s.decoders.size() * most;
  for (const Slot& slot : s.slots) tokens += slot.tokens * most + 1;
  if (tokens <= free) return most;
  std::int64_t fits = 0;
  std::int64_t too_many = most + 1;
  while (too_many - fits > 1) {
    const std::int64_t middle = fits + (too_many - fits) / 2;
    (blocks_of_steps(s, middle) <= free ? fits : too_many) = middle;
  }
  return fits;
}

std::int64_t blocks_of_steps(const EngineState& s, std::int64_t steps) {
  const std::int64_t allocated = allocated_steps(s);
  std::int64_t blocks = s.decoders.new_blocks(allocated, steps);
  for (const Slot& slot : s.slots) {
    blocks += s.memory.blocks_for(slot.computed + (steps + allocated) * slot.tokens) -
              s.memory.blocks_for(slot.computed + allocated * slot.tokens);
  }
  return blocks;
}

Time end_of_uneven_jump(const EngineState& s) {
  Time end = s.jump.end_of_step();
  StepLoad load = s.jump.load;
  for (std::int64_t left = s.jump.steps - s.jump.begun; left > 0 && end < kEndOfTime; --left) {
    load = following(load);
    end += duration_of(s.settings, load, s.jump.emits);
  }
  return end;
}

}  // namespace spillway::instance
