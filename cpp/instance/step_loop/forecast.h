#pragma once

#include <span>

#include "instance/instance.h"
#include "instance/step_loop/state.h"
#include "sim/time.h"

namespace spillway::instance {

/// When the last of `entries`, which enter in order of their times, would have its first token if
/// no other request entered from now on; kUnset: it would be refused, or the clock ends before. A
/// copy of the state runs ahead to find out. It costs as much as those steps.
sim::Time predict_first_token(const EngineState& state, std::span<const Entry> entries,
                              sim::Time now);

}  // namespace spillway::instance
