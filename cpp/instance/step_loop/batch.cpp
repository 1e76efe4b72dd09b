#include "instance/step_loop/batch.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace spillway::instance {

using sim::Time;

namespace {

std::int64_t rank_of(const EngineState& s, sim::RequestId id) {
  return s.settings.scheduler->rank(id, s.settings.requests);
}

// The slot with the lowest priority; of equals the last to arrive, then the last to enter.
// Precondition: there are slots.
std::size_t least_urgent(const EngineState& s) {
  const auto key = [&](const Slot& slot) {
    return std::pair(rank_of(s, slot.id), s.settings.requests.arrival(slot.id));
  };
  std::size_t last = 0;
  for (std::size_t i = 1; i < s.slots.size(); ++i) {
    if (key(s.slots[i]) >= key(s.slots[last])) last = i;
  }
  return last;
}

// The request's planned tokens return to the budget. Blocks filled by these tokens are already
// registered. A token that it emits in the current step is not lost.
void preempt(EngineState& s, Recorder& recorder, std::size_t which, std::int64_t& budget,
             Time now) {
  s.preempted = true;
  Slot& victim = s.slots[which];
  budget += victim.planned;
  s.memory.preempt(victim.id, victim.holding, victim.computed + victim.tokens + victim.planned);
  ++s.counters.preemptions;
  recorder.preempted(victim.id);
  account_waiting(s, now);
  if (victim.emits()) s.ousted.push_back(victim);
  if (!victim.is_finishing()) {
    s.waiting.push_front(
        {.id = victim.id,
         .emitted = s.settings.preemption == Preemption::restart ? 0 : victim.emitted,
         .rank = rank_of(s, victim.id),
         .last_token = victim.last_token,
         .returned = true});
  }
  s.slots.erase(s.slots.begin() + static_cast<std::ptrdiff_t>(which));
}

// Allocates tokens to slots in order, and preempts when memory runs out.
[[gnu::noinline]] void schedule_slots(EngineState& s, Recorder& recorder, std::int64_t& budget,
                                      Time now) {
  for (Slot& slot : s.slots) slot.planned = 0;
  for (std::size_t i = 0; i < s.slots.size() && budget > 0;) {
    Slot& slot = s.slots[i];
    const std::int64_t tokens = share_of(s, slot, budget);
    if (s.memory.extend(slot.id, slot.holding, slot.computed + slot.tokens + tokens)) {
      slot.planned = tokens;
      budget -= tokens;
      ++i;
    } else {
      const std::size_t victim =
          s.settings.preempting.takes_least_urgent ? least_urgent(s) : s.slots.size() - 1;
      if (victim < i) --i;
      preempt(s, recorder, victim, budget, now);
    }
  }
}

// Blocks of the decoders, with those for the step that is being scheduled, that are not taken yet.
std::int64_t late_blocks(const EngineState& s) {
  if (!s.takes_late) return 0;
  return s.decoders.held_blocks(allocated_steps(s) + 1) - s.unplanned_blocks -
         s.decoders.taken_blocks();
}

bool admit_head(EngineState& s, Recorder& recorder, std::int64_t& budget, Time now) {
  const Waiting& head = s.waiting.head();
  const workload::RequestTable& requests = s.settings.requests;
  const bool returned = head.returned;
  Slot& slot =
      s.slots.emplace_back(Slot{.id = head.id,
                                .entry = s.next_entry,
                                .emitted = head.emitted,
                                .input_tokens = requests.input_tokens(head.id),
                                .target_output_tokens = requests.target_output_tokens(head.id),
                                .last_token = head.last_token});
  slot.computed = s.memory.find(slot.id, slot.known_tokens(), returned);
  slot.planned = share_of(s, slot, budget);
  slot.is_cached = slot.planned == 0;
  std::int64_t spare_blocks =
      s.memory.spare_blocks(slot.known_tokens(), slot.computed + slot.planned, num_running(s) == 1);
  if (spare_blocks > 0) spare_blocks += late_blocks(s);
  if (!s.memory.admit(slot.id, slot.holding, slot.planned, spare_blocks)) {
    s.slots.pop_back();
    return false;
  }
  account_waiting(s, now);
  s.waiting.pop();
  ++s.next_entry;
  budget -= slot.planned;
  recorder.scheduled(slot.id, now, returned);
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

// Admits heads of the queue while seats, budget and memory suffice or other requests are preempted
// for them. A head that does not fit blocks the queue, as does one that was preempted for another
// request in this step.
[[gnu::noinline]] void schedule_waiting(EngineState& s, Recorder& recorder, std::int64_t& budget,
                                        Time now) {
  std::vector<sim::RequestId>& preempted = s.preempted_for_head;
  while (!s.waiting.empty() && budget > 0 &&
         std::find(preempted.begin(), preempted.end(), s.waiting.head().id) == preempted.end()) {
    if (num_running(s) < s.settings.max_num_seqs && admit_head(s, recorder, budget, now)) continue;
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

// Takes the blocks that the decoders begin in the step, in which those that finish with the current
// one have no part; their tokens leave the budget. False, without a change, if their order matters,
// because one of them would be preempted.
bool schedule_decoders(EngineState& s, std::int64_t& budget) {
  if (s.decoders.empty()) return true;
  if (!keeps_sums(s)) return false;
  if (s.settings.preempting.margin && !s.waiting.empty() && head_may_preempt(s)) return false;
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

void choose_when_to_take(EngineState& s) {
  const bool may_take_late = s.memory.may_take_late(s.demand_blocks);
  if (may_take_late == s.takes_late) return;
  if (!may_take_late) return take_late_blocks(s);
  s.decoders.begin_late_taking(allocated_steps(s));
  s.takes_late = true;
}

}  // namespace

// Most steps have no slots, and no request waits for them: what concerns these is compiled apart.
std::int64_t schedule_step(EngineState& s, Recorder& recorder, Time now) {
  choose_when_to_take(s);
  std::int64_t budget = s.settings.max_num_batched_tokens;
  if (!schedule_decoders(s, budget)) dissolve_decoders(s, recorder, now);
  s.preempted = false;
  if (!s.slots.empty()) schedule_slots(s, recorder, budget, now);
  if (!s.waiting.empty() && !s.preempted) schedule_waiting(s, recorder, budget, now);
  return budget;
}

void dissolve_decoders(EngineState& s, Recorder& recorder, Time now) {
  take_late_blocks(s);
  const bool is_stepping = steps_in_progress(s) > 0;
  const std::int64_t allocated = allocated_steps(s);
  s.decoders.take_all(s.members);
  for (const Decoders::Member& member : s.members) {
    Slot slot{.id = member.id,
              .entry = member.entry,
              .emitted = static_cast<std::int32_t>(s.decoders.emitted(member)),
              .input_tokens = s.settings.requests.input_tokens(member.id),
              .target_output_tokens = s.settings.requests.target_output_tokens(member.id),
              .computed = s.decoders.computed(member),
              .tokens = is_stepping ? 1 : 0,
              .planned = s.is_planned ? 1 : 0,
              .last_token = now};  // steps follow each other without gaps
    slot.holding = {.blocks = s.memory.blocks_for(slot.computed + allocated),
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
