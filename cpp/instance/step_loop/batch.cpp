#include "instance/step_loop/batch.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace spillway::instance {

using sim::Time;

namespace {

std::int64_t rank_of(const EngineState& s, sim::RequestId id) {
  return s.settings.scheduler->rank(id, s.settings.requests);
}

// The slot with the lowest priority; of equals the last to arrive, then the last or the first to
// enter.
// Precondition: there are slots.
std::size_t least_urgent(const EngineState& s) {
  const auto key = [&](const Slot& slot) {
    return std::pair(rank_of(s, slot.id), s.settings.requests.arrival(slot.id));
  };
  std::size_t last = 0;
  for (std::size_t i = 1; i < s.slots.size(); ++i) {
    if (key(s.slots[i]) > key(s.slots[last]) ||
        (!s.settings.rules.first_equal_victim && key(s.slots[i]) == key(s.slots[last]))) {
      last = i;
    }
  }
  return last;
}

// The slot with the fewest tokens in memory after the current step; of equals the last to enter.
// Precondition: there are slots.
std::size_t least_computed(const EngineState& s) {
  std::size_t least = 0;
  for (std::size_t i = 1; i < s.slots.size(); ++i) {
    if (s.slots[i].computed + s.slots[i].tokens <=
        s.slots[least].computed + s.slots[least].tokens) {
      least = i;
    }
  }
  return least;
}

std::size_t choose_victim(const EngineState& s) {
  switch (s.settings.preempting.victim) {
    case Victim::lowest_priority:
      return least_urgent(s);
    case Victim::least_computed:
      return least_computed(s);
    case Victim::last:
      break;
  }
  return s.slots.size() - 1;
}

// The request's planned tokens return to the budget. Blocks filled by these tokens are already
// registered. A token that it emits in the current step is not lost.
void preempt(EngineState& s, Recorder& recorder, std::size_t which, std::int64_t& budget,
             Time now) {
  s.preempted = true;
  Slot& victim = s.slots[which];
  budget += victim.planned + (victim.planned > 0 ? s.settings.slots_per_part : 0);
  s.memory.preempt(victim.id, victim.holding,
                   s.settings.rules.registers_when_known || s.settings.num_drafts > 0
                       ? victim.findable
                       : victim.computed + victim.tokens + victim.planned);
  ++s.counters.preemptions;
  recorder.preempted(victim.id);
  account_waiting(s, now);
  // A prefill leg without its prompt in memory starts again.
  const bool starts_again = victim.leg == Leg::prefill;
  if (victim.emits() && !starts_again) s.ousted.push_back(victim);
  if (!victim.is_finishing() || starts_again) {
    s.waiting.push_front(
        {.id = victim.id,
         .emitted = s.settings.preemption == Preemption::restart ? 0 : victim.emitted,
         .rank = rank_of(s, victim.id),
         .last_token = victim.last_token,
         .lost_tokens = static_cast<std::int32_t>(victim.computed + victim.tokens),
         .draft_steps = victim.draft_steps,
         .resumes = victim.resumes && !victim.emits(),
         .leg = victim.leg});
  }
  s.slots.erase(s.slots.begin() + static_cast<std::ptrdiff_t>(which));
}

// Tokens for which a request holds memory when these are covered: also for drafts.
std::int64_t held_for(const EngineState& s, std::int64_t covered) {
  if (s.settings.lookahead == 0) return covered;
  return std::min(covered + s.settings.lookahead, s.settings.max_model_len);
}

// Gives a slot these tokens and the blocks for them; false: memory is short.
bool give(EngineState& s, Slot& slot, std::int64_t tokens) {
  if (tokens == 0) return true;
  const std::int64_t covered = slot.computed + slot.tokens + tokens;
  const std::int64_t known = known_of(s, slot, covered);
  if (!s.memory.extend(slot.id, slot.holding, held_for(s, covered), known)) return false;
  slot.planned = tokens;
  slot.planned_drafts =
      static_cast<std::int32_t>(std::max<std::int64_t>(0, tokens - next_need(slot)));
  slot.findable = known;
  s.has_prompts = s.has_prompts || slot.in_prompt;
  s.started_prompts = s.started_prompts || slot.in_prompt;
  slot.in_prompt = covered < slot.known_tokens();
  return true;
}

// Allocates tokens to slots in order, and preempts when memory runs out.
[[gnu::noinline]] void schedule_slots(EngineState& s, Recorder& recorder, std::int64_t& budget,
                                      Time now) {
  const EngineRules& rules = s.settings.rules;
  for (Slot& slot : s.slots) {
    slot.planned = 0;
    slot.planned_drafts = 0;
  }
  for (std::size_t next = 0; next < s.slots.size() && budget > s.settings.slots_per_part;) {
    std::size_t at = next;
    std::int64_t tokens = share_of(s, s.slots[at], budget);
    bool is_victim = false;
    while (!is_victim && !give(s, s.slots[at], tokens)) {
      const std::size_t victim = choose_victim(s);
      is_victim = victim == at;
      if (victim < at) {
        --at;
        if (!rules.skips_after_victim || s.slots[victim].planned > 0) --next;
      }
      preempt(s, recorder, victim, budget, now);
      if (!is_victim && !rules.keeps_share) tokens = share_of(s, s.slots[at], budget);
    }
    if (!is_victim) {
      budget -= tokens + (tokens > 0 ? s.settings.slots_per_part : 0);
      ++next;
    } else if (rules.self_preemption == SelfPreemption::ends_step) {
      return;
    }
  }
}

// Blocks of the decoders, with those for the step that is being scheduled, that are not taken yet.
std::int64_t late_blocks(const EngineState& s) {
  if (!s.takes_late) return 0;
  return s.decoders.held_blocks(allocated_steps(s) + 1) - s.unplanned_blocks -
         s.decoders.taken_blocks();
}

// Whether the new slot, the last one, gets empty drafts: no prompt is in the step, and it is not
// alone in it without a hit.
bool may_pad(const EngineState& s, const Slot& slot) {
  if (s.settings.num_drafts == 0 || s.started_prompts) return false;
  const auto has_part = [](const Slot& other) { return other.planned > 0; };
  return slot.computed > 0 || std::any_of(s.slots.begin(), s.slots.end() - 1, has_part);
}

void pad(const EngineState& s, Slot& slot) {
  const std::int64_t room = s.settings.max_model_len - 1 - slot.known_tokens();
  const std::int64_t drafts = std::max<std::int64_t>(0, std::min(s.settings.num_drafts, room));
  slot.planned += drafts;
  slot.planned_drafts = static_cast<std::int32_t>(drafts);
  slot.is_padded_next = true;
}

// Whether the special rules let the new slot, the last one, enter; they may change its tokens.
// `left`: of the budget, at most.
[[gnu::noinline]] bool may_enter(const EngineState& s, Slot& slot, std::int64_t left) {
  const std::int64_t need = slot.needed_tokens();
  slot.in_prompt = slot.planned < need;
  slot.findable = known_of(s, slot, slot.computed + slot.planned);
  if (s.settings.rules.pads_drafts && need == 1 && may_pad(s, slot)) pad(s, slot);
  if (s.pauses_prompts && need > 1) return false;
  if (!s.settings.chunks_prompts && std::min(need, s.prefill_cap) > left) return false;
  return slot.planned <= left;
}

// The head, a decode leg, takes blocks for its prompt; the new slot is the last one. False: they do
// not fit.
[[gnu::noinline]] bool receive_head(EngineState& s, Recorder& recorder, Time now) {
  Slot slot = s.slots.back();
  s.slots.pop_back();
  const std::int64_t prompt = slot.known_tokens();
  std::int64_t spare_blocks = s.memory.spare_blocks(prompt, prompt, is_batch_empty(s));
  if (spare_blocks > 0) spare_blocks += late_blocks(s);
  if (!s.memory.admit(slot.id, slot.holding, prompt - slot.computed, slot.computed, spare_blocks)) {
    return false;
  }
  account_waiting(s, now);
  s.waiting.pop();
  s.awaited_tokens -= prompt;
  s.receiving.push_back({slot.id, slot.holding, slot.computed});
  ++s.num_arriving;
  const std::int64_t found = s.memory.block_size().whole(slot.computed);
  recorder.blocks_taken(slot.id, slot.holding.blocks - found);
  return true;
}

// Requests whose prompts have arrived enter, with their last prompt token to be computed.
[[gnu::noinline]] void admit_ready(EngineState& s, Recorder& recorder, std::int64_t& budget) {
  const workload::RequestTable& requests = s.settings.requests;
  std::size_t entered = 0;
  while (entered < s.ready.size() && budget > 0 && num_running(s) < s.settings.max_admitting_seqs) {
    const Prompt& prompt = s.ready[entered++];
    Slot& slot =
        s.slots.emplace_back(Slot{.id = prompt.id,
                                  .entry = s.next_entry++,
                                  .emitted = emitted_elsewhere(s, prompt.id),
                                  .input_tokens = requests.input_tokens(prompt.id),
                                  .target_output_tokens = requests.target_output_tokens(prompt.id),
                                  .holding = prompt.holding,
                                  .last_token = last_token_elsewhere(s, prompt.id)});
    slot.resumes = slot.emitted > 0;
    slot.computed = slot.known_tokens() - 1;
    slot.planned = 1;
    slot.findable = slot.known_tokens();
    s.memory.register_known(slot.id, slot.holding, slot.findable);
    --budget;
    recorder.seated(slot.id, slot.computed);
  }
  s.num_arriving -= static_cast<std::int32_t>(entered);
  s.ready.erase(s.ready.begin(), s.ready.begin() + static_cast<std::ptrdiff_t>(entered));
}

bool admit_head(EngineState& s, Recorder& recorder, std::int64_t& budget, Time now) {
  const Waiting& head = s.waiting.head();
  const workload::RequestTable& requests = s.settings.requests;
  const bool returned = head.has_returned();
  Slot& slot =
      s.slots.emplace_back(Slot{.id = head.id,
                                .entry = s.next_entry,
                                .emitted = head.emitted,
                                .input_tokens = requests.input_tokens(head.id),
                                .target_output_tokens = requests.target_output_tokens(head.id),
                                .draft_steps = head.draft_steps,
                                .last_token = head.last_token});
  slot.computed = s.memory.find(slot.id, slot.known_tokens(), returned);
  const std::int64_t left = budget - s.settings.slots_per_part;
  slot.planned = std::min({slot.needed_tokens(), s.prefill_cap, left});
  slot.is_cached = slot.planned == 0;
  std::int64_t covered = slot.computed + slot.planned;
  slot.findable = covered;
  if (s.settings.has_special_rules) [[unlikely]] {
    if (head.leg == Leg::decode) return receive_head(s, recorder, now);
    if (head.leg == Leg::prefill) slot.target_output_tokens = slot.emitted + 1;
    slot.leg = head.leg;
    slot.resumes = head.resumes;
    if (!may_enter(s, slot, left)) {
      s.slots.pop_back();
      return false;
    }
    covered = slot.computed + slot.planned;
    if (s.settings.rules.lookahead_at_admission) covered = held_for(s, covered);
  }
  std::int64_t spare_blocks =
      s.memory.spare_blocks(slot.known_tokens(), covered, num_running(s) == 1);
  if (spare_blocks > 0) spare_blocks += late_blocks(s);
  if (!s.memory.admit(slot.id, slot.holding, covered - slot.computed, slot.findable,
                      spare_blocks)) {
    s.slots.pop_back();
    return false;
  }
  account_waiting(s, now);
  if (returned) [[unlikely]]
    s.counters.tokens_recomputed += std::max<std::int64_t>(0, head.lost_tokens - slot.computed);
  s.waiting.pop();
  ++s.next_entry;
  budget = left - slot.planned;
  recorder.scheduled(slot.id, now, returned);
  if (s.settings.has_special_rules) [[unlikely]] {
    s.has_prompts = s.has_prompts || slot.needed_tokens() > 1;
    recorder.admitted(slot.id, slot.computed, returned);
  }
  return true;
}

bool yields_to_head(const EngineState& s, sim::RequestId id) {
  return rank_of(s, id) - s.waiting.head().rank >= s.settings.preempting.margin.value_or(0);
}

// True if a request of the batch may be preempted for the head of the queue. If not, none is
// preempted for later requests of the queue either. The answer is constant while head and batch are
// unchanged, because ranks never change. Precondition: requests wait.
[[gnu::noinline]] bool head_may_preempt(const EngineState& s) {
  const auto yields = [&](const auto& request) { return yields_to_head(s, request.id); };
  const auto decoders = s.decoders.members();
  return std::any_of(s.slots.begin(), s.slots.end(), yields) ||
         std::any_of(decoders.begin(), decoders.end(), yields);
}

bool preempt_for_head(EngineState& s, Recorder& recorder, std::int64_t& budget, Time now) {
  const PreemptionRules& rules = s.settings.preempting;
  if (!rules.margin || s.slots.empty() || std::ssize(s.preempted_for_head) == rules.max_per_step) {
    return false;
  }
  const std::size_t victim = least_urgent(s);
  const sim::RequestId id = s.slots[victim].id;
  if (!yields_to_head(s, id)) return false;
  s.preempted_for_head.push_back(id);
  preempt(s, recorder, victim, budget, now);
  return true;
}

// Sorts the queue by the tokens that each request would find, as they are before any of them joins.
// The rank of an entry is what it had at the first order that included it, so that what it gains
// needs no change.
[[gnu::noinline]] void order_by_prefix(EngineState& s, const PrefixOrder& order) {
  ++s.orders;
  const bool sorts = std::ssize(s.waiting) <= order.max_requests;
  s.waiting.sort([&](Waiting& entry) -> std::int64_t {
    if (entry.rank == 0) entry.rank = order.aging_tokens * s.orders;
    if (!sorts) return 0;
    const std::int64_t known = s.settings.requests.input_tokens(entry.id) + entry.emitted;
    return entry.rank - s.memory.find(entry.id, known, entry.has_returned());
  });
}

// Admits heads of the queue while seats, budget and memory suffice or other requests are preempted
// for them. A head that does not fit blocks the queue, as does one that was preempted for another
// request in this step.
[[gnu::noinline]] void schedule_waiting(EngineState& s, Recorder& recorder, std::int64_t& budget,
                                        Time now) {
  if (const auto& order = s.settings.prefix_order) [[unlikely]]
    order_by_prefix(s, *order);
  std::vector<sim::RequestId>& preempted = s.preempted_for_head;
  while (!s.waiting.empty() && budget > s.settings.slots_per_part &&
         std::find(preempted.begin(), preempted.end(), s.waiting.head().id) == preempted.end()) {
    if (num_running(s) < s.settings.max_admitting_seqs && admit_head(s, recorder, budget, now)) {
      continue;
    }
    if (!preempt_for_head(s, recorder, budget, now)) break;
  }
  preempted.clear();
}

// Whether there is memory for the decoders, which begin `new_blocks`, and for all slots that
// get tokens from this `budget`; otherwise a request is preempted. The budget always suffices for
// the decoders: each had its token in the last step, and the requests before it need no more than
// then, so a slot that gets fewer tokens is behind all of them.
bool memory_suffices(const EngineState& s, std::int64_t new_blocks, std::int64_t budget) {
  std::int64_t blocks = new_blocks;
  for (const Slot& slot : s.slots) {
    const std::int64_t tokens = share_of(s, slot, budget);
    blocks += s.memory.blocks_for(slot.computed + slot.tokens + tokens) - slot.holding.blocks;
    budget -= tokens;
  }
  return blocks <= s.memory.free();
}

// Whether what a prompt gets depends on more than the prompt and the budget.
bool varies_prompts(const EngineState& s) {
  return s.settings.varies_cap || s.settings.prefill_interval > 1;
}

// Whether all requests get what they need. Otherwise a prompt that gets more tokens than in the
// last step may leave none for the decoders behind it.
[[gnu::noinline]] bool budget_suffices(const EngineState& s) {
  std::int64_t tokens = s.decoders.size();
  for (const Slot& slot : s.slots) {
    tokens += share_of(s, slot, std::numeric_limits<std::int64_t>::max());
  }
  return tokens <= s.settings.max_num_batched_tokens;
}

// Takes the blocks that the decoders begin in the step, in which those that finish with the current
// one have no part; their tokens leave the budget. False, without a change, if their order matters,
// because one of them would be preempted.
template <bool kHasSpecialRules>
bool schedule_decoders(EngineState& s, std::int64_t& budget) {
  if (s.decoders.empty()) return true;
  if (!keeps_sums(s)) return false;
  if (s.settings.preempting.margin && !s.waiting.empty() && head_may_preempt(s)) return false;
  if constexpr (kHasSpecialRules) {
    if (varies_prompts(s) && !budget_suffices(s)) return false;
  }
  Decoders::Finishing finishing;
  if (s.activity == Activity::stepping) finishing = s.decoders.finishing();
  const std::int64_t left = budget - (s.decoders.size() - finishing.requests);
  if (!s.takes_late) {
    const std::int64_t blocks = s.decoders.new_blocks(allocated_steps(s), 1) - finishing.blocks;
    if (!memory_suffices(s, blocks, left)) return false;
    s.memory.take(blocks);
  }
  s.unplanned_blocks = finishing.blocks;
  budget = left;
  return true;
}

[[gnu::always_inline]] inline void choose_when_to_take(EngineState& s) {
  const bool may_take_late = s.memory.may_take_late(s.demand_blocks);
  if (may_take_late == s.takes_late) return;
  if (!may_take_late) return take_late_blocks(s);
  s.decoders.begin_late_taking(allocated_steps(s));
  s.takes_late = true;
}

// What the number of requests, and the steps before, say about the step.
void limit_prompts(EngineState& s) {
  const EngineSettings& settings = s.settings;
  const std::int64_t requests = num_running(s) + num_waiting(s);
  if (settings.varies_cap && requests > 0) {
    s.prefill_cap = settings.prefill_cap;
    if (settings.adapts_cap) {
      s.prefill_cap = std::max(s.prefill_cap, settings.max_num_batched_tokens / requests);
    }
    if (!settings.rules.caps_lone_requests && requests == 1) {
      s.prefill_cap = std::numeric_limits<std::int64_t>::max();
    }
  }
  const bool is_between = s.steps_since_prompts + 1 < settings.prefill_interval;
  const auto decodes = [](const Slot& slot) { return !slot.in_prompt; };
  s.pauses_prompts = is_between && s.left_none_waiting &&
                     (!s.decoders.empty() || std::ranges::any_of(s.slots, decodes));
}

// What later steps have to know of the one that has been scheduled. A request with one token left
// to compute enters also while prompts pause, and counts as none.
void note_scheduled(EngineState& s, Recorder& recorder, bool has_tokens, Time now) {
  if (has_tokens) ++s.steps_since_prompts;
  if (std::exchange(s.has_prompts, false)) s.steps_since_prompts = 0;
  if (!s.pauses_prompts) s.left_none_waiting = num_waiting(s) == 0;
  recorder.step_scheduled(s, now);
}

// Most steps have no slots, and no request waits for them: what concerns these is compiled apart.
template <bool kHasSpecialRules>
[[gnu::always_inline]] inline std::int64_t schedule(EngineState& s, Recorder& recorder, Time now) {
  choose_when_to_take(s);
  std::int64_t budget = s.settings.max_num_batched_tokens;
  if constexpr (kHasSpecialRules) {
    if (varies_prompts(s)) limit_prompts(s);
    budget -= s.settings.slots_of_drafts;
    s.started_prompts = false;
  }
  [[maybe_unused]] const std::int64_t whole_budget = budget;
  if (!schedule_decoders<kHasSpecialRules>(s, budget)) dissolve_decoders(s, recorder, now);
  s.preempted = false;
  if (!s.slots.empty()) schedule_slots(s, recorder, budget, now);
  if constexpr (kHasSpecialRules) {
    if (!s.ready.empty() && !s.preempted) admit_ready(s, recorder, budget);
  }
  if (!s.waiting.empty() && !s.preempted) schedule_waiting(s, recorder, budget, now);
  if constexpr (kHasSpecialRules) note_scheduled(s, recorder, budget < whole_budget, now);
  return budget;
}

[[gnu::noinline]] std::int64_t schedule_by_rules(EngineState& s, Recorder& recorder, Time now) {
  return schedule<true>(s, recorder, now);
}

}  // namespace

std::int64_t schedule_step(EngineState& s, Recorder& recorder, Time now) {
  if (s.settings.has_special_rules) [[unlikely]]
    return schedule_by_rules(s, recorder, now);
  return schedule<false>(s, recorder, now);
}

void preempt_all(EngineState& s, Recorder& recorder, Time now) {
  dissolve_decoders(s, recorder, now);
  std::int64_t budget = 0;  // of no step
  while (!s.slots.empty()) preempt(s, recorder, s.slots.size() - 1, budget, now);
}

void dissolve_decoders(EngineState& s, Recorder& recorder, Time now) {
  take_late_blocks(s);
  s.unplanned_blocks = 0;
  const bool is_stepping = steps_in_progress(s) > 0;
  s.decoders.take_all(s.members);
  for (const Decoders::Member& member : s.members) {
    const std::int64_t computed = s.decoders.computed(member);
    const std::int64_t current = is_stepping ? 1 : 0;
    // A request that finishes with the current step has no part in the planned one.
    const bool is_planned = s.is_planned && (!is_stepping || member.final_computed > computed + 1);
    const std::int64_t planned = is_planned ? 1 : 0;
    Slot slot{.id = member.id,
              .entry = member.entry,
              .emitted = static_cast<std::int32_t>(s.decoders.emitted(member)),
              .input_tokens = s.settings.requests.input_tokens(member.id),
              .target_output_tokens = s.settings.requests.target_output_tokens(member.id),
              .computed = computed,
              .tokens = current,
              .planned = planned,
              .findable = !s.settings.rules.registers_when_known  ? computed + current + planned
                          : !s.settings.plans_ahead || is_planned ? computed + current
                                                                  : computed,
              .last_token = now};  // steps follow each other without gaps
    slot.holding = {.blocks = s.memory.blocks_for(computed + current + planned),
                    .prefix = member.prefix,
                    .returned = member.returned};
    recorder.left_decoders(member);
    s.slots.push_back(slot);
  }
  s.members.clear();
  std::sort(s.slots.begin(), s.slots.end(),
            [](const Slot& a, const Slot& b) { return a.entry < b.entry; });
}

}  // namespace spillway::instance
