#pragma once

#include <cstdint>

#include "instance/step_loop/recorder.h"
#include "instance/step_loop/state.h"
#include "sim/time.h"

/// The batch between two steps: which requests are in it, and what tokens a step gives them.
namespace spillway::instance {

/// Gives the tokens of the step that starts now: to the decoders, to the slots in order of entry,
/// then to the head of the queue as long as it fits. Returns what is left of the step's budget.
std::int64_t schedule_step(EngineState& s, Recorder& recorder, sim::Time now);

/// The decoders become slots.
void dissolve_decoders(EngineState& s, Recorder& recorder, sim::Time now);

}  // namespace spillway::instance
