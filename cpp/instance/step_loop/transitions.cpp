#include "instance/step_loop/transitions.h"

#include <algorithm>
#include <optional>

#include "instance/step_loop/batch.h"
#include "instance/step_loop/effects.h"
#include "instance/step_loop/jump.h"

namespace spillway::instance {

using sim::RequestId;
using sim::Time;

namespace {

void count_begun(EngineState& s, std::int64_t steps) {
  s.counters.steps += steps;
  s.counters.waiting_after_steps += steps * static_cast<std::int64_t>(s.waiting.size());
}

// Ends the jump with the current step.
[[gnu::always_inline]] inline void cut_jump(EngineState& s, Recorder& recorder) {
  s.jump.steps = s.jump.begun;
  s.jump.end = s.jump.end_of_step();
  recorder.jump_ends(s.jump.end);
}

// The next steps of the jump begin, with the duration of the current one; all before the last of
// them become silent.
void begin(EngineState& s, std::int64_t steps) {
  const std::int64_t allocated = allocated_steps(s);
  if (!s.takes_late) s.memory.take(s.decoders.new_blocks(allocated, steps));
  // If blocks are only counted, extending each slot once is enough. If they have identities, it
  // matters which request fills a block last.
  if (!s.slots.empty()) {
    for (std::int64_t step = s.memory.counts_only() ? steps : 1; step <= steps; ++step) {
      for (Slot& slot : s.slots) {
        const std::int64_t covered = slot.computed + (step + allocated) * slot.tokens;
        slot.findable = known_of(s, slot, covered);
        s.memory.extend(slot.id, slot.holding, covered, slot.findable);
      }
    }
  }
  s.jump.start += Time{steps * s.jump.duration.ns};
  s.jump.begun += steps;
  s.jump.silent += steps;
  count_begun(s, steps);
}

// Begins the steps that start before `now`, where all of a jump are equally long.
void begin_due(EngineState& s, Time now) {
  if (!has_steps_ahead(s) || s.jump.end_of_step() >= now) return;
  const std::int64_t due = (now - s.jump.start - Time{1}).ns / s.jump.duration.ns;
  begin(s, std::min(s.jump.steps - s.jump.begun, due));
}

// Precondition: the step has a plan.
bool plan_has_requests(const EngineState& s) {
  const auto has_part = [](const Slot& slot) { return slot.planned > 0; };
  return !s.decoders.empty() || has_withdrawn(s) ||
         std::any_of(s.slots.begin(), s.slots.end(), has_part);
}

// Precondition: a step has just been scheduled.
bool has_tokens(const EngineState& s) {
  const auto has_part = [](const Slot& slot) { return slot.planned > 0 || slot.is_cached; };
  return !s.decoders.empty() || std::ranges::any_of(s.slots, has_part);
}

// A request that preempts itself may leave the step without tokens; the next one follows at once.
// Precondition: as above.
[[gnu::noinline]] std::int64_t schedule_until_tokens(EngineState& s, Recorder& recorder, Time now,
                                                     std::int64_t budget_left) {
  while (s.preempted && num_running(s) + std::ssize(s.waiting) + std::ssize(s.ready) > 0 &&
         !has_tokens(s)) {
    budget_left = schedule_step(s, recorder, now);
  }
  return budget_left;
}

[[gnu::always_inline]] inline void add_prefill(StepLoad& load, const Slot& slot) {
  ++load.prefill_requests;
  load.prefill_tokens += slot.tokens;
  load.prefill_attention += slot.tokens * (2 * slot.computed + slot.tokens);
  load.prefill_squares += slot.tokens * slot.tokens;
}

void take_planned_drafts(EngineState& s) {
  for (Slot& slot : s.slots) {
    slot.drafts = slot.planned_drafts;
    slot.is_padded = slot.is_padded_next;
    slot.is_padded_next = false;
  }
}

// A batch keeps the tokens of the requests that were withdrawn from it. True: a token is emitted.
bool add_withdrawn(EngineState& s) {
  StepLoad& load = s.jump.load;
  bool emits = false;
  for (Slot& slot : s.withdrawn) {
    slot.tokens = slot.planned;
    load.context_tokens += slot.computed;
    slot.drafts = slot.planned_drafts;
    if (slot.in_prompt || slot.tokens - slot.drafts > 1 || slot.emitted == 0) {
      add_prefill(load, slot);
    } else {
      ++load.decode_requests;
      load.decode_context_tokens += slot.computed;
      load.prefill_tokens += slot.drafts;
    }
    emits = emits || !slot.in_prompt;
  }
  return emits;
}

// What special rules add to a step that begins. True: a token is emitted.
[[gnu::noinline]] bool take_up_plan(EngineState& s) {
  take_planned_drafts(s);
  return add_withdrawn(s);
}

// A jump of one step begins; its tokens have been allocated.
[[gnu::always_inline]] inline void begin_jump(EngineState& s, Time now) {
  StepLoad& load = s.jump.load;
  load.prefill_tokens = 0;
  load.prefill_requests = 0;
  load.decode_requests = s.decoders.size();
  load.context_tokens = s.decoders.context_tokens();
  load.decode_context_tokens = load.context_tokens;
  load.prefill_attention = 0;
  load.prefill_squares = 0;
  load.ordinal = s.counters.steps;
  bool emits = !s.decoders.empty();
  if (s.settings.has_special_rules && take_up_plan(s)) [[unlikely]]
    emits = true;
  for (Slot& slot : s.slots) {
    slot.tokens = slot.planned;
    slot.planned = 0;
    if (slot.tokens == 0 && !slot.is_cached) continue;
    load.context_tokens += slot.computed;
    if (slot.is_decoding()) {
      ++load.decode_requests;
      load.decode_context_tokens += slot.computed;
      load.prefill_tokens += slot.drafts;
    } else if (slot.tokens > 0) {
      add_prefill(load, slot);
    }
    emits = emits || slot.tokens - slot.drafts == slot.needed_tokens();
  }

  s.is_planned = false;
  s.activity = Activity::stepping;
  s.jump.start = now;
  s.jump.duration = duration_of(s.settings, load, emits);
  s.jump.emits = emits;
  s.jump.effects_taken = false;
  s.jump.begun = 1;
  s.jump.silent = 0;
  s.jump.steps = 1;
}

// Whether no request can join the batch. A full batch stays full during the jump unless a request
// is preempted for the head.
bool is_full(const EngineState& s, std::int64_t budget_left) {
  const bool has_no_seat =
      num_running(s) == s.settings.max_num_seqs && !s.settings.preempting.margin;
  return budget_left == 0 || has_no_seat;
}

// The parts of a step. A step in lockstep has other work between them, all others have none: there
// both are compiled into one function, because it runs most often of all.
[[gnu::always_inline]] inline bool form(EngineState& s, Recorder& recorder, Time now) {
  s.counters.last_event = now;
  s.activity = Activity::idle;
  std::int64_t budget_left = 0;
  if (!s.is_planned || !plan_has_requests(s)) {
    s.is_planned = false;
    budget_left = schedule_step(s, recorder, now);
    if (s.preempted) [[unlikely]]
      budget_left = schedule_until_tokens(s, recorder, now, budget_left);
  }
  if (is_batch_empty(s) && !has_withdrawn(s)) return false;
  begin_jump(s, now);
  s.jump.is_full = is_full(s, budget_left);
  return true;
}

[[gnu::always_inline]] inline void begin_formed(EngineState& s, Recorder& recorder, Time now) {
  if (s.settings.has_special_rules) [[unlikely]]
    recorder.step_begins(s);
  if (s.settings.plans_ahead) {
    s.jump.is_full = is_full(s, schedule_step(s, recorder, now));
    s.is_planned = true;
  }
  count_begun(s, 1);
  if (has_withdrawn(s)) [[unlikely]] {
    s.withdrawn.clear();
  } else if (may_jump(s) && !s.preempted) {
    s.jump.steps = length_of_jump(s);
  }
  s.jump.end = end_of_jump(s);
  recorder.jump_ends(s.jump.end);
  // The effects of a jump are applied with its last step: until then they change no decision.
  if (s.settings.completion == Completion::step_start && s.jump.steps == 1) {
    apply_step(s, recorder);
  }
}

// Tokens that a step computes for the only request of the batch, however many wait.
std::int64_t alone_in_a_step(const EngineState& s) {
  const EngineSettings& settings = s.settings;
  const std::int64_t budget =
      settings.max_num_batched_tokens - settings.slots_of_drafts - settings.slots_per_part;
  return std::min(budget, settings.prefill_cap);
}

// What joins the queue has a `leg` that the compiler knows.
[[gnu::always_inline]] inline void join(EngineState& s, Recorder& recorder, RequestId id, Leg leg,
                                        Time now) {
  s.counters.last_event = std::max(s.counters.last_event, now);
  if (leg != Leg::decode) {
    ++s.counters.entered;
    recorder.entered(id, now);
  }
  s.settings.durations_vary ? catch_up(s, recorder, now) : begin_due(s, now);
  s.demand_blocks += demand_of(s, id);
  const bool head_is_blocked = !s.waiting.empty();
  account_waiting(s, now);
  s.waiting.push(
      {.id = id, .rank = s.settings.scheduler->rank(id, s.settings.requests), .leg = leg});
  // A request that could join the batch at the next step ends the jump. None can if seats or budget
  // are used up, or while a head of the queue that did not fit is still the head: free memory only
  // shrinks during a jump.
  const bool still_blocked = head_is_blocked && s.waiting.head().id != id && !s.settings.adapts_cap;
  if (has_steps_ahead(s) && !s.jump.is_full && !still_blocked) cut_jump(s, recorder);
}

// Takes a prompt out of a list of them.
Prompt take_out(std::vector<Prompt>& prompts, RequestId id) {
  const auto found = std::ranges::find(prompts, id, &Prompt::id);
  const Prompt prompt = *found;
  prompts.erase(found);
  return prompt;
}

bool has_prompt(const std::vector<Prompt>& prompts, RequestId id) {
  return std::ranges::find(prompts, id, &Prompt::id) != prompts.end();
}

// Memory has become free: the head of the queue may fit.
void note_free(EngineState& s, Recorder& recorder) {
  if (has_steps_ahead(s) && !s.waiting.empty()) cut_jump(s, recorder);
}

// A prompt that no request will compute on here leaves the memory.
void free_prompt(EngineState& s, const Prompt& prompt) {
  s.memory.leave(prompt.holding, prompt_of(s, prompt.id), prompt.findable, false);
  s.demand_blocks -= demand_of(s, prompt.id);
}

// The request leaves if its prompt has arrived, but it has no seat yet; false: it is not such.
[[gnu::noinline]] bool withdraw_ready(EngineState& s, Recorder& recorder, const Leaving& leaving,
                                      Time now) {
  if (!has_prompt(s.ready, leaving.id)) return false;
  waste(s, recorder, leaving.id, prompt_of(s, leaving.id));
  free_prompt(s, take_out(s.ready, leaving.id));
  --s.num_arriving;
  ++s.counters.cancelled;
  note_free(s, recorder);
  recorder.withdrawn(leaving, emitted_elsewhere(s, leaving.id), now);
  return true;
}

}  // namespace

bool can_hold_leg(const EngineState& s, RequestId id, Leg leg) {
  if (leg == Leg::decode) return can_hold(s, id);
  const std::int64_t whole = prompt_of(s, id) + 1;
  return can_hold_by_rules(s, whole - 1) && s.memory.blocks_for(whole) <= s.memory.total() &&
         whole <= s.settings.max_model_len;
}

void join_queue_as(EngineState& s, Recorder& recorder, RequestId id, Leg leg, Time now) {
  if (leg == Leg::decode) s.awaited_tokens += prompt_of(s, id);
  join(s, recorder, id, leg, now);
}

void receive_prompt(EngineState& s, Recorder& recorder, RequestId id, Time now) {
  s.counters.last_event = std::max(s.counters.last_event, now);
  catch_up(s, recorder, now);
  Prompt prompt = take_out(s.receiving, id);
  prompt.findable = prompt_of(s, id) - 1;
  s.memory.register_known(id, prompt.holding, prompt.findable);
  s.ready.push_back(prompt);
  ++s.counters.entered;
  recorder.arrived(id);
  if (has_steps_ahead(s) && !s.jump.is_full) cut_jump(s, recorder);
}

void drop_leg(EngineState& s, RequestId id, Recorder& recorder, Time now) {
  s.counters.last_event = std::max(s.counters.last_event, now);
  catch_up(s, recorder, now);
  if (has_prompt(s.receiving, id)) {
    free_prompt(s, take_out(s.receiving, id));
    --s.num_arriving;
  } else {
    account_waiting(s, now);
    s.waiting.remove(id);
    s.awaited_tokens -= prompt_of(s, id);
    s.demand_blocks -= demand_of(s, id);
  }
  note_free(s, recorder);
}

void forget_prompt(EngineState& s, Recorder& recorder, RequestId id, bool was_read, Time now) {
  s.counters.last_event = std::max(s.counters.last_event, now);
  catch_up(s, recorder, now);
  if (!was_read) waste(s, recorder, id, prompt_of(s, id));
  free_prompt(s, take_out(s.unread, id));
  note_free(s, recorder);
}

void keep_prompt(EngineState& s, Recorder& recorder, RequestId id, Time now) {
  s.counters.last_event = std::max(s.counters.last_event, now);
  catch_up(s, recorder, now);
  s.ready.push_back(take_out(s.unread, id));
  ++s.num_arriving;
  ++s.counters.entered;
  recorder.arrived(id);
  if (has_steps_ahead(s) && !s.jump.is_full) cut_jump(s, recorder);
}

bool can_hold_by_rules(const EngineState& s, std::int64_t computed) {
  if (!s.settings.chunks_prompts &&
      computed + s.settings.slots_of_drafts + s.settings.slots_per_part >
          s.settings.max_num_batched_tokens) {
    return false;
  }
  if (s.settings.lookahead == 0) return true;
  const std::int64_t held = std::min(computed + s.settings.lookahead, s.settings.max_model_len);
  if (s.memory.blocks_for(held) <= s.memory.total()) return true;
  // A request whose drafts do not fit preempts itself. It gets one more token when it returns, if
  // its admission needs no memory for drafts and computes all of its tokens.
  return !s.settings.rules.lookahead_at_admission && computed <= alone_in_a_step(s);
}

void join_queue(EngineState& s, Recorder& recorder, RequestId id, Time now) {
  join(s, recorder, id, Leg::whole, now);
}

void resume_in_queue(EngineState& s, RequestId id) {
  const workload::Resumption& resumption = (*s.settings.resumptions)[id.index()];
  if (resumption.emitted == 0) return;
  s.waiting.resume(id, resumption.emitted, resumption.last_token);
}

void withdraw(EngineState& s, Recorder& recorder, const Leaving& leaving, Time now) {
  s.counters.last_event = std::max(s.counters.last_event, now);
  catch_up(s, recorder, now);
  if (s.settings.has_legs && withdraw_ready(s, recorder, leaving, now)) return;
  const bool is_head = !s.waiting.empty() && s.waiting.head().id == leaving.id;
  account_waiting(s, now);
  if (const std::optional<Waiting> waiting = s.waiting.remove(leaving.id)) {
    // Requests behind a blocked head may fit.
    if (has_steps_ahead(s) && is_head && is_blocked(s)) cut_jump(s, recorder);
    std::erase_if(s.ousted, [&](const Slot& slot) { return slot.id == leaving.id; });
    s.demand_blocks -= demand_of(s, leaving.id);
    ++s.counters.cancelled;
    if (waiting->has_returned()) waste(s, recorder, leaving.id, waiting->lost_tokens);
    recorder.withdrawn(leaving, waiting->emitted, now);
    return;
  }
  s.leaving.push_back(leaving);
  if (s.activity != Activity::stepping) return take_out_leaving(s, recorder, now);
  if (has_steps_ahead(s)) cut_jump(s, recorder);
}

void abort_before_tokens(EngineState& s, Recorder& recorder, Time now) {
  if (s.settings.rules.aborts_before_tokens && !s.leaving.empty()) {
    take_out_leaving(s, recorder, now);
  }
}

void begin_rest(EngineState& s) { begin(s, s.jump.steps - s.jump.begun); }

bool form_batch(EngineState& s, Recorder& recorder, Time now) { return form(s, recorder, now); }

void begin_step(EngineState& s, Recorder& recorder, Time now) { begin_formed(s, recorder, now); }

void start_step(EngineState& s, Recorder& recorder, Time now) {
  if (form(s, recorder, now)) begin_formed(s, recorder, now);
}

void catch_up(EngineState& s, Recorder& recorder, Time now) {
  if (!s.settings.durations_vary) {
    begin_due(s, now);
    return apply_silent_steps(s, recorder);
  }
  while (has_steps_ahead(s) && s.jump.end_of_step() < now) {
    begin(s, 1);
    apply_silent_steps(s, recorder);
    s.jump.load = following(s.jump.load);
    s.jump.duration = duration_of(s.settings, s.jump.load, s.jump.emits);
  }
}

bool end_due_step(EngineState& s, Recorder& recorder, Time now) {
  catch_up(s, recorder, now);
  if (s.activity != Activity::stepping || s.jump.end_of_step() != now) return false;
  if (has_steps_ahead(s)) cut_jump(s, recorder);
  end_step(s, recorder, now);
  return true;
}

// The last step of a jump ends by its event, which comes before a fault of that instant.
void end_jump_early(EngineState& s, Recorder& recorder, Time now) {
  if (!end_due_step(s, recorder, now) && has_steps_ahead(s)) cut_jump(s, recorder);
}

void lose_requests(EngineState& s, Recorder& recorder, Time now) {
  end_jump_early(s, recorder, now);
  const bool holds_prompts = !s.receiving.empty() || !s.unread.empty();
  if (has_work(s) || holds_prompts) s.counters.last_event = std::max(s.counters.last_event, now);
  dissolve_decoders(s, recorder, steps_in_progress(s) > 0 ? s.jump.start : now);
  const auto lose = [&](RequestId id, std::int32_t emitted, std::int64_t tokens, Time last_token) {
    waste(s, recorder, id, tokens);
    recorder.breaks(id, last_token, tokens);
    const auto leaving = std::ranges::find(s.leaving, id, &Leaving::id);
    if (leaving != s.leaving.end()) {
      ++s.counters.cancelled;
      return recorder.withdrawn(*leaving, emitted, now);
    }
    ++s.counters.lost;
    s.counters.lost_time += recorder.lost(id, emitted, now);
  };
  const auto lose_leg = [&](RequestId id, Leg leg) {
    ++s.counters.lost_legs;
    s.counters.lost_time += recorder.lost_leg(id, leg, now);
  };
  account_waiting(s, now);
  for (const Slot& slot : s.slots) lose(slot.id, slot.emitted, slot.computed, slot.last_token);
  // Ousted requests that finish with the current step are not in the queue.
  for (const Slot& slot : s.ousted) {
    if (!s.waiting.has(slot.id)) lose(slot.id, slot.emitted, slot.computed, slot.last_token);
  }
  for (const Prompt& prompt : s.ready) {
    lose(prompt.id, emitted_elsewhere(s, prompt.id), prompt_of(s, prompt.id),
         last_token_elsewhere(s, prompt.id));
  }
  while (!s.waiting.empty()) {
    const Waiting waiting = s.waiting.head();
    s.waiting.pop();
    if (waiting.leg == Leg::decode) {
      lose_leg(waiting.id, Leg::decode);
      continue;
    }
    lose(waiting.id, waiting.emitted, waiting.has_returned() ? waiting.lost_tokens : 0,
         waiting.last_token);
  }
  for (const Prompt& prompt : s.receiving) lose_leg(prompt.id, Leg::decode);
  for (const Prompt& prompt : s.unread) {
    waste(s, recorder, prompt.id, prompt_of(s, prompt.id));
    lose_leg(prompt.id, Leg::prefill);
  }
}

Loss lose_kv(EngineState& s, Recorder& recorder, KvLoss loss, Time now) {
  end_jump_early(s, recorder, now);
  s.kv_loss = std::max(s.kv_loss, loss);
  Loss found;
  if (loss == KvLoss::all) {
    found.preempted = num_running(s);
    found.tokens = s.decoders.context_tokens();
    for (const Slot& slot : s.slots) found.tokens += slot.computed;
  }
  if (s.activity != Activity::stepping) empty_memory(s, recorder, now);
  return found;
}

void empty_memory(EngineState& s, Recorder& recorder, Time now) {
  if (std::exchange(s.kv_loss, KvLoss::none) == KvLoss::all) preempt_all(s, recorder, now);
  s.memory.forget_cached();
}

void stop(EngineState& s, Recorder& recorder, Time end) {
  if (s.activity == Activity::stepping) {
    // Includes every step that starts or ends up to `end`.
    catch_up(s, recorder, end + Time{1});
    if (s.jump.begun > 1) {
      s.counters.last_event = std::max(s.counters.last_event, s.jump.start);
    }
    // If effects take place at the start of a step, those of the last one are due. No request
    // finishes in a step of an unfinished jump.
    if (s.settings.completion == Completion::step_start && !s.jump.effects_taken) {
      s.jump.start = s.jump.end_of_step();
      s.jump.silent = 1;
      apply_silent_steps(s, recorder);
      s.jump.effects_taken = true;
    }
  }
  account_waiting(s, s.counters.last_event);
  const KvCounts counts = kv_counts(s);
  s.counters.kv_hits = counts.hits;
  s.counters.kv_misses = counts.misses;
  s.counters.kv_lookups = counts.lookups;
  s.counters.peak_kv_utilization =
      static_cast<double>(counts.most_in_use) / static_cast<double>(s.memory.total());
}

}  // namespace spillway::instance
