#pragma once

#include <algorithm>
#include <cstdint>

#include "instance/step_loop/effects.h"
#include "instance/step_loop/recorder.h"
#include "instance/step_loop/state.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"

/// The transitions of an engine: requests join and leave, steps start and end. Both a run and a
/// forecast call them, each on its own schedule.
namespace spillway::instance {

/// Whether the special rules could ever compute a request of which `computed` tokens must be.
bool can_hold_by_rules(const EngineState& s, std::int64_t computed);
/// Whether the engine could ever hold the request.
inline bool can_hold(const EngineState& s, sim::RequestId id) {
  const std::int64_t input = s.settings.requests.input_tokens(id);
  const std::int64_t whole = input + s.settings.requests.output_tokens(id);
  // The last token is not computed, unless the prompt is all there is.
  if (s.settings.has_special_rules && !can_hold_by_rules(s, std::max(input, whole - 1)))
      [[unlikely]] {
    return false;
  }
  return s.memory.blocks_for(whole) <= s.memory.total() && input < s.settings.max_model_len &&
         whole <= s.settings.max_model_len;
}

/// Whether the engine could ever hold the leg of a request.
bool can_hold_leg(const EngineState& s, sim::RequestId id, Leg leg);
/// A leg joins the queue. Precondition: `can_hold_leg`.
void join_queue_as(EngineState& s, Recorder& recorder, sim::RequestId id, Leg leg, sim::Time now);
/// The prompt of a decode leg arrives in its blocks.
void receive_prompt(EngineState& s, Recorder& recorder, sim::RequestId id, sim::Time now);
/// A decode leg leaves before that.
void drop_leg(EngineState& s, sim::RequestId id, Recorder& recorder, sim::Time now);
/// The prompt of a prefill leg that has ended leaves the memory. `was_read`: it has arrived.
void forget_prompt(EngineState& s, Recorder& recorder, sim::RequestId id, bool was_read,
                   sim::Time now);

/// Or is continued here: the request waits for a seat as if its prompt had arrived.
void keep_prompt(EngineState& s, Recorder& recorder, sim::RequestId id, sim::Time now);

/// A request joins the queue. Precondition: `can_hold`.
void join_queue(EngineState& s, Recorder& recorder, sim::RequestId id, sim::Time now);
/// A request that has joined the queue brings what it has emitted in other instances.
void resume_in_queue(EngineState& s, sim::RequestId id);

/// Withdraws a request: it leaves the queue, or the batch at the end of the current step; between
/// steps, now.
void withdraw(EngineState& s, Recorder& recorder, const Leaving& leaving, sim::Time now);

/// The batch of a step is formed, and `jump.duration` is the duration of the step; false: no
/// request has work, and the engine is idle.
bool form_batch(EngineState& s, Recorder& recorder, sim::Time now);

/// The step of the batch that has just been formed starts, with `jump.duration`; it is the first of
/// a jump that ends at `jump.end`.
void begin_step(EngineState& s, Recorder& recorder, sim::Time now);

/// Both of these.
void start_step(EngineState& s, Recorder& recorder, sim::Time now);

/// Begins the steps of the jump that start before `now`. It changes no decision, but must precede
/// reads of the memory and requests that join or leave.
void catch_up(EngineState& s, Recorder& recorder, sim::Time now);

/// Parts of `end_step`, which runs for every jump and mostly takes neither: steps of the jump have
/// yet to begin; special rules may let withdrawn requests leave first.
void begin_rest(EngineState& s);
void abort_before_tokens(EngineState& s, Recorder& recorder, sim::Time now);

/// The last step of the jump ends, at `jump.end`. The engine is then idle, at least for this
/// instant.
inline void end_step(EngineState& s, Recorder& recorder, sim::Time now) {
  s.counters.last_event = now;
  if (s.settings.durations_vary) catch_up(s, recorder, now);
  if (!s.jump.effects_taken) {
    // Steps of equal duration can begin together.
    if (s.jump.steps > s.jump.begun) begin_rest(s);
    if (s.settings.has_special_rules) [[unlikely]]
      abort_before_tokens(s, recorder, now);
    apply_step(s, recorder);
  }
  s.activity = Activity::idle;
  if (!s.leaving.empty()) [[unlikely]]
    take_out_leaving(s, recorder, now);
}

/// Ends the step that ends now, if its event has yet to come because a jump was cut, or would not
/// have come; whether it did. Nothing is then under way, and the next step has not been requested.
bool end_due_step(EngineState& s, Recorder& recorder, sim::Time now);

/// Of an engine that may fail. The jump ends with its current step, or has ended if that step ends
/// now, as above.
void end_jump_early(EngineState& s, Recorder& recorder, sim::Time now);
/// All requests leave without their answers, because the process has ended. The state is no longer
/// of use.
void lose_requests(EngineState& s, Recorder& recorder, sim::Time now);

/// The content of the memory is lost once the step under way has ended, by `empty_memory`, or now.
/// Returns what the batch is about to lose.
Loss lose_kv(EngineState& s, Recorder& recorder, KvLoss loss, sim::Time now);
/// Precondition: no step is under way.
void empty_memory(EngineState& s, Recorder& recorder, sim::Time now);

/// Ends the run: advances state and counters to `end`, inclusive.
void stop(EngineState& s, Recorder& recorder, sim::Time end);

}  // namespace spillway::instance
