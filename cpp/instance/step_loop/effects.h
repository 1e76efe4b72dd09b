#pragma once

#include <cstdint>

#include "instance/step_loop/recorder.h"
#include "instance/step_loop/state.h"
#include "sim/time.h"

/// What steps do to the batch: tokens, completions, released memory, withdrawals.
namespace spillway::instance {

/// The effects of the step under way, and of `silent_steps` silent ones before it.
void apply_step(EngineState& s, Recorder& recorder, std::int64_t silent_steps);

/// The effects of `steps` silent steps, the last of which ends as the step under way starts: in
/// these only decoders emit, and none its last token.
void apply_silent_steps(EngineState& s, Recorder& recorder, std::int64_t steps);

/// The withdrawn requests of the batch leave, between two steps. Those whose last token came with
/// the step just made are gone already.
void take_out_leaving(EngineState& s, Recorder& recorder, sim::Time now);

}  // namespace spillway::instance
