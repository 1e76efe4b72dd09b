#pragma once

#include <cstdint>

#include "instance/latency/latency.h"
#include "instance/step_loop/state.h"
#include "sim/time.h"

/// The number of consecutive steps of an unchanged batch, and when they end: pure functions of the
/// state.
namespace spillway::instance {

sim::Time duration_of(const EngineSettings& settings, const StepLoad& load, bool emits);

/// The load of the step after one with `load`, if the batch is unchanged.
inline StepLoad following(StepLoad load) {
  load.context_tokens += load.decode_requests + load.prefill_tokens;
  load.decode_context_tokens += load.decode_requests;
  load.prefill_attention += 2 * load.prefill_squares;
  ++load.ordinal;
  return load;
}

/// Whether requests wait although seats and budget are left: the head of the queue found no memory.
inline bool is_blocked(const EngineState& s) { return !s.waiting.empty() && !s.jump.is_full; }

/// Number of steps for which the batch is unchanged, from the current step on, the first of its
/// jump. Precondition: `may_jump`, and no request was preempted for this step.
std::int64_t length_of_jump(const EngineState& s);

/// Number of the `most` steps after the current one, or after the planned one, that find memory.
/// Precondition: a step is in progress, and blocks are not taken late.
std::int64_t steps_within_memory(const EngineState& s, std::int64_t most);

/// Number of blocks that `steps` steps after those that are allocated take.
std::int64_t blocks_of_steps(const EngineState& s, std::int64_t steps);

/// End of the current jump if its steps may differ in duration.
sim::Time end_of_uneven_jump(const EngineState& s);

/// End of the current jump.
inline sim::Time end_of_jump(const EngineState& s) {
  if (s.settings.durations_vary) return end_of_uneven_jump(s);
  const std::int64_t left = s.jump.steps - s.jump.begun;
  return s.jump.end_of_step() + sim::Time{left * s.jump.duration.ns};
}

}  // namespace spillway::instance
