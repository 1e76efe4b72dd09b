#pragma once

#include "instance/step_loop/recorder.h"
#include "instance/step_loop/state.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"

/// What happens to an engine: requests come and go, steps start and end. A run and a forecast call
/// these alike; when they do is theirs to decide.
namespace spillway::instance {

/// Whether the engine could ever hold the request.
bool can_hold(const EngineState& s, sim::RequestId id);

/// A request that it can hold joins the queue.
void join_queue(EngineState& s, Recorder& recorder, sim::RequestId id, sim::Time now);

/// A request that is inside leaves the queue, or is marked to leave the batch with the step under
/// way; if none is, it leaves now.
void withdraw(EngineState& s, Recorder& recorder, const Leaving& one, sim::Time now);

/// A step starts, the first of a jump up to `jump.end`; or the engine is idle.
void start_step(EngineState& s, Recorder& recorder, sim::Time now);

/// The last step of the jump ends, at `jump.end`. Afterwards the engine is idle, if only for now.
void end_step(EngineState& s, Recorder& recorder, sim::Time now);

/// Begins the steps of the jump that start before `now`. That changes no decision, but it is
/// needed before the memory is read or a request joins or leaves.
void catch_up(EngineState& s, Recorder& recorder, sim::Time now);

/// The run is over: brings state and counters to where they stand at `end`, inclusive.
void stop(EngineState& s, Recorder& recorder, sim::Time end);

}  // namespace spillway::instance
