#pragma once

#include <cstdint>

#include "instance/step_loop/recorder.h"
#include "instance/step_loop/state.h"
#include "sim/time.h"

/// The effects of steps on the batch: tokens, completions, released memory, withdrawals.
namespace spillway::instance {

/// Applies the effects of the current step, and of the silent ones before it.
void apply_step(EngineState& s, Recorder& recorder);

/// Applies the effects of the jump's silent steps, the last of which ends when the current step
/// starts: in these only decoders emit tokens, and none its last one.
void apply_silent_steps(EngineState& s, Recorder& recorder);

/// A request leaves without its answer: these of its tokens were computed in vain.
inline void waste(EngineState& s, Recorder& recorder, sim::RequestId id, std::int64_t tokens) {
  s.counters.tokens_wasted += tokens;
  recorder.wasted(id, tokens);
}

/// Removes the withdrawn requests of the batch, between two steps. Those that finished in the last
/// step have already left.
void take_out_leaving(EngineState& s, Recorder& recorder, sim::Time now);

}  // namespace spillway::instance
