#pragma once

#include <cstdint>

#include "instance/step_loop/recorder.h"
#include "instance/step_loop/state.h"
#include "sim/time.h"

/// The batch between two steps: its requests, and their tokens in the next step.
namespace spillway::instance {

/// Allocates the tokens of the step after the current one, or, between steps, of the next: to the
/// decoders, to the slots in order of entry, then to heads of the queue while they fit. Returns the
/// rest of the step's budget.
std::int64_t schedule_step(EngineState& s, Recorder& recorder, sim::Time now);

/// Turns the decoders into slots.
void dissolve_decoders(EngineState& s, Recorder& recorder, sim::Time now);

/// Every request of the batch returns to the queue, in order of entry.
void preempt_all(EngineState& s, Recorder& recorder, sim::Time now);

}  // namespace spillway::instance
