#pragma once

#include <span>

#include "instance/instance.h"
#include "instance/step_loop/state.h"
#include "sim/time.h"

namespace spillway::instance {

/// Time of the first token of the last of `entries`, which are in order of time, if no other
/// request entered from now on; kUnset: it would be refused, or the clock ends before. Runs a copy
/// of the state ahead, at the cost of those steps.
sim::Time predict_first_token(const EngineState& state, std::span<const Entry> entries,
                              sim::Time now);

}  // namespace spillway::instance
