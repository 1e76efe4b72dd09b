#include "instance/step_loop/effects.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "instance/step_loop/batch.h"
#include "sim/rng.h"

namespace spillway::instance {

using sim::Time;

namespace {

[[gnu::always_inline]] inline void emit_decoders(EngineState& s, Recorder& recorder,
                                                 std::int64_t steps) {
  if (s.decoders.empty()) return;
  s.counters.tokens_emitted += steps * s.decoders.size();
  recorder.decoder_tokens(s.decoders, s.jump, steps);
  if (!s.emitted_by_group.empty()) s.decoders.count_tokens(s.emitted_by_group, steps);
  s.decoders.advance(steps);
}

void pop_finished_decoders(EngineState& s, Recorder& recorder) {
  while (s.decoders.has_finished()) {
    const Decoders::Member member = s.decoders.pop_finished();
    const std::int64_t blocks = s.memory.blocks_for(member.final_computed);
    if (s.takes_late) s.memory.take(blocks - member.taken_blocks);
    recorder.left_decoders(member);
    s.finished.push_back({member.entry,
                          member.id,
                          {.blocks = blocks, .prefix = member.prefix},
                          member.final_computed,
                          member.final_computed});
  }
}

// Before blocks are released the most are in use.
void note_blocks_in_use(EngineState& s) {
  const std::int64_t others = s.memory.total() - s.memory.free() - s.decoders.taken_blocks();
  if (others + s.decoders.most_held_blocks(allocated_steps(s)) <= s.memory.counts().most_in_use) {
    return;
  }
  s.memory.note_in_use(others + decoders_blocks(s));
}

// Number of accepted drafts of a step.
std::int32_t draw_accepted(const EngineState& s, const Slot& slot) {
  const std::span<const std::uint8_t> own = s.settings.requests.accepted(slot.id);
  const auto step = static_cast<std::size_t>(slot.draft_steps);
  if (!own.empty()) return own[step % own.size()];
  sim::Draws draws(s.settings.seed, sim::Stream::drafts, s.settings.requests.row(slot.id), step);
  const std::vector<double>& shares = s.settings.acceptance;
  std::int32_t accepted = 0;
  while (accepted < slot.drafts) {
    const double share = shares[std::min(static_cast<std::size_t>(accepted), shares.size() - 1)];
    if (share < 1 && (share == 0 || draws.uniform() >= share)) break;
    ++accepted;
  }
  return accepted;
}

// Number of tokens that a step with drafts delivers; those accepted stay computed.
[[gnu::noinline]] std::int32_t take_accepted(const EngineState& s, Slot& slot) {
  std::int32_t accepted = 0;
  if (!slot.is_padded) {
    accepted = std::min(draw_accepted(s, slot), slot.drafts);
    ++slot.draft_steps;
  }
  slot.computed += accepted;
  return std::min(accepted + 1, slot.target_output_tokens - slot.emitted);
}

// Tokens that a slot has emitted may now be found. The last one never: drafts that were accepted
// beyond the end of the output may have computed it.
void register_emitted(EngineState& s, Slot& slot) {
  if (s.settings.num_drafts > 0 && !s.settings.plans_ahead &&
      !s.settings.rules.registers_accepted) {
    return;
  }
  const std::int64_t computed = std::min(slot.computed, slot.known_tokens() - 1);
  slot.findable = std::max(slot.findable, known_of(s, slot, computed));
  s.memory.register_known(slot.id, slot.holding, slot.findable);
}

// Without special rules there are no drafts, and a block is registered when its tokens are
// allocated.
template <bool kHasSpecialRules>
[[gnu::always_inline]] inline void advance(EngineState& s, Recorder& recorder, Slot& slot) {
  const std::int64_t known = slot.known_tokens();
  slot.computed += slot.tokens;
  if constexpr (kHasSpecialRules) slot.computed -= slot.drafts;
  if ((slot.tokens > 0 || slot.is_cached) && slot.computed == known) {
    slot.is_cached = false;
    std::int32_t tokens = 1;
    if constexpr (kHasSpecialRules) {
      if (slot.drafts > 0) tokens = take_accepted(s, slot);
    }
    slot.emitted += tokens;
    if constexpr (kHasSpecialRules) {
      // The client of a prefill leg sees no token.
      if (slot.leg == Leg::prefill) {
        slot.last_token = s.jump.end_of_step();
        slot.tokens = 0;
        return register_emitted(s, slot);
      }
    }
    s.counters.tokens_emitted += tokens;
    if (!s.emitted_by_group.empty()) {
      s.emitted_by_group[s.settings.requests.group(slot.id)] += tokens;
    }
    recorder.token(slot, s.jump);
    slot.last_token = s.jump.end_of_step();
    if constexpr (kHasSpecialRules) {
      register_emitted(s, slot);
      if (std::exchange(slot.resumes, false)) recorder.resumed(slot.id, slot.last_token);
    }
  }
  if constexpr (kHasSpecialRules) slot.drafts = 0;
  slot.tokens = 0;
  recorder.seen_in_step(slot, s.jump.end_of_step());
}

[[gnu::noinline]] void advance_by_rules(EngineState& s, Recorder& recorder, Slot& slot) {
  advance<true>(s, recorder, slot);
}

// Whether the request was withdrawn during its last step.
bool withdraw_at_end(EngineState& s, Recorder& recorder, sim::RequestId id, std::int64_t computed) {
  const auto leaving = std::find_if(s.leaving.begin(), s.leaving.end(),
                                    [&](const Leaving& other) { return other.id == id; });
  if (leaving == s.leaving.end()) return false;
  ++s.counters.cancelled;
  waste(s, recorder, id, computed);
  recorder.withdrawn(*leaving, s.settings.requests.target_output_tokens(id), s.jump.end_of_step());
  s.leaving.erase(leaving);
  return true;
}

[[gnu::always_inline]] inline void complete(EngineState& s, Recorder& recorder, sim::RequestId id,
                                            std::int64_t computed) {
  s.demand_blocks -= s.memory.blocks_for(computed);
  if (!s.leaving.empty() && withdraw_at_end(s, recorder, id, computed)) return;
  ++s.counters.completed;
  recorder.completed(id, s.jump.end_of_step());
}

// Prefill legs with their token leave the batch; their prompts stay in memory.
[[gnu::noinline]] void end_prefills(EngineState& s, Recorder& recorder) {
  for (std::size_t i = 0; i < s.slots.size();) {
    const Slot slot = s.slots[i];
    if (slot.leg != Leg::prefill || !slot.has_finished()) {
      ++i;
      continue;
    }
    if (std::ranges::find(s.leaving, slot.id, &Leaving::id) != s.leaving.end()) {
      --s.slots[i].emitted;
      ++i;
      continue;
    }
    s.slots.erase(s.slots.begin() + static_cast<std::ptrdiff_t>(i));
    s.unread.push_back({slot.id, slot.holding, slot.findable});
    ++s.counters.handed_over;
    recorder.prefill_ended(slot.id);
  }
}

// The slots get their tokens; those that have all of them are finished, and those that decode from
// now on join the decoders.
void advance_slots(EngineState& s, Recorder& recorder, std::int64_t silent_steps) {
  // Sums are not used while memory is short or the budget is below one token per request.
  const bool may_join =
      keeps_sums(s) && !s.preempted && num_running(s) <= s.settings.max_num_batched_tokens;
  for (Slot& slot : s.slots) {
    slot.computed += silent_steps * slot.tokens;
    if (s.settings.has_special_rules) [[unlikely]] {
      advance_by_rules(s, recorder, slot);
    } else {
      advance<false>(s, recorder, slot);
    }
  }
  if (s.settings.has_special_rules && s.settings.has_legs) [[unlikely]]
    end_prefills(s, recorder);
  std::erase_if(s.slots, [&](const Slot& slot) {
    if (slot.has_finished()) {
      const std::int64_t computed = std::min(slot.computed, slot.known_tokens() - 1);
      s.finished.push_back({slot.entry, slot.id, slot.holding, computed,
                            s.settings.num_drafts == 0 ? computed : slot.findable});
      // Accepted drafts may end it earlier than planned.
      if (slot.planned > 0) s.withdrawn.push_back(slot);
      return true;
    }
    if (!may_join || !slot.is_decoding() || slot.last_token != s.jump.end_of_step()) return false;
    // The sums do not know when a block of generated tokens can be found.
    if (slot.holding.to_register > 0) return false;
    if (s.is_planned && slot.planned == 0) return false;
    s.decoders.join(slot.id, slot.entry, slot.emitted, slot.holding,
                    recorder.joined_decoders(slot.id));
    return true;
  });
}

// The finished requests leave in order of entry.
void complete_finished(EngineState& s, Recorder& recorder) {
  const auto by_entry = [](const Finished& a, const Finished& b) { return a.entry < b.entry; };
  if (!std::is_sorted(s.finished.begin(), s.finished.end(), by_entry)) {
    std::sort(s.finished.begin(), s.finished.end(), by_entry);
  }
  for (const Finished& finished : s.finished) {
    const bool has_output = s.settings.requests.output_tokens(finished.id) > 0;
    s.memory.leave(finished.holding, finished.computed, finished.findable, has_output);
    complete(s, recorder, finished.id, finished.computed);
  }
  s.finished.clear();
}

// The requests that were preempted for the plan get the token of the step that has ended.
void advance_ousted(EngineState& s, Recorder& recorder) {
  for (Slot& slot : s.ousted) {
    advance_by_rules(s, recorder, slot);
    if (slot.has_finished()) {
      // With drafts it may have been expected to go on.
      account_waiting(s, s.jump.end_of_step());
      s.waiting.remove(slot.id);
      complete(s, recorder, slot.id, std::min(slot.computed, slot.known_tokens() - 1));
    } else {
      s.waiting.emitted(slot.id, slot.emitted, slot.draft_steps, slot.last_token);
    }
  }
  s.ousted.clear();
}

}  // namespace

void apply_step(EngineState& s, Recorder& recorder) {
  const std::int64_t silent_steps = s.jump.silent;
  s.jump.silent = 0;
  s.jump.effects_taken = true;
  emit_decoders(s, recorder, silent_steps + 1);
  // A step without slots, in which no decoder finishes, is a matter of the sums alone.
  const bool have_finished = s.decoders.has_finished();
  const bool concerns_requests = have_finished || !s.slots.empty();
  if (concerns_requests && s.takes_late) note_blocks_in_use(s);
  s.unplanned_blocks = 0;
  if (concerns_requests) {
    if (have_finished) pop_finished_decoders(s, recorder);
    if (!s.slots.empty()) advance_slots(s, recorder, silent_steps);
    if (!s.finished.empty()) complete_finished(s, recorder);
  }
  if (!s.ousted.empty()) advance_ousted(s, recorder);
}

void apply_silent_steps(EngineState& s, Recorder& recorder) {
  const std::int64_t steps = s.jump.silent;
  if (steps == 0) return;
  s.jump.silent = 0;
  emit_decoders(s, recorder, steps);
  for (Slot& slot : s.slots) {
    slot.computed += steps * slot.tokens;
    recorder.seen_in_step(slot, s.jump.start);
  }
}

void take_out_leaving(EngineState& s, Recorder& recorder, Time now) {
  // Before the effects of a step the latest token of a decoder is that of the step before.
  dissolve_decoders(s, recorder, steps_in_progress(s) > 0 ? s.jump.start : now);
  for (const Leaving& leaving : s.leaving) {
    const auto is_it = [&](const Slot& other) { return other.id == leaving.id; };
    auto slot = std::find_if(s.slots.begin(), s.slots.end(), is_it);
    const bool is_running = slot != s.slots.end();
    // A request that was preempted while it finishes is not in the batch.
    if (!is_running) slot = std::find_if(s.ousted.begin(), s.ousted.end(), is_it);
    s.demand_blocks -= demand_of(s, leaving.id);
    ++s.counters.cancelled;
    waste(s, recorder, leaving.id, slot->computed);
    recorder.withdrawn(leaving, slot->emitted, now);
    if (!is_running) {
      s.ousted.erase(slot);
      continue;
    }
    // The request's own blocks will not be looked for again, as after a completion.
    s.memory.leave(slot->holding, slot->computed, slot->findable, false);
    if (s.settings.rules.aborts_before_tokens && slot->planned > 0) {
      slot->computed += slot->tokens;
      s.withdrawn.push_back(*slot);
    }
    s.slots.erase(slot);
  }
  s.leaving.clear();
}

}  // namespace spillway::instance
