#pragma once

#include <cstdint>

#include "instance/latency/latency.h"
#include "instance/step_loop/state.h"
#include "sim/time.h"

/// How many steps of an unchanged batch follow each other, and when they end. Nothing here changes
/// a state.
namespace spillway::instance {

sim::Time duration_of(const EngineSettings& settings, const StepLoad& load, bool emits);

/// The load of the step after one of `load`, if the batch stays as it is.
inline StepLoad following(StepLoad load) {
  load.context_tokens += load.decode_requests + load.prefill_tokens;
  ++load.ordinal;
  return load;
}

/// Whether requests wait although there are seats and budget left: the head of the queue found no
/// memory.
inline bool is_blocked(const EngineState& s) { return !s.waiting.empty() && !s.jump.is_full; }

/// For how many steps from the one under way, the first of its jump, the batch stays as it is.
/// Precondition: `may_jump`, and no request was preempted for this step.
std::int64_t length_of_jump(const EngineState& s);

/// How many of the `most` steps after the one under way find memory.
std::int64_t steps_within_memory(const EngineState& s, std::int64_t most);

/// Blocks that the next `steps` steps after the one under way take.
std::int64_t blocks_of_steps(const EngineState& s, std::int64_t steps);

/// When the last step of the jump under way ends, if its steps may differ in duration.
sim::Time end_of_uneven_jump(const EngineState& s);

/// When the last step of the jump under way ends.
inline sim::Time end_of_jump(const EngineState& s) {
  if (s.settings.durations_vary) return end_of_uneven_jump(s);
  const std::int64_t left = s.jump.steps - s.jump.begun;
  return s.jump.end_of_step() + sim::Time{left * s.jump.duration.ns};
}

}  // namespace spillway::instance
