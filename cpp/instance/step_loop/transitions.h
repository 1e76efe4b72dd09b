#pragma once

#include "instance/step_loop/recorder.h"
#include "instance/step_loop/state.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"

/// The transitions of an engine: requests join and leave, steps start and end. Both a run and a
/// forecast call them, each on its own schedule.
namespace spillway::instance {

/// Whether the engine could ever hold the request.
bool can_hold(const EngineState& s, sim::RequestId id);

/// A request joins the queue. Precondition: `can_hold`.
void join_queue(EngineState& s, Recorder& recorder, sim::RequestId id, sim::Time now);

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

/// The last step of the jump ends, at `jump.end`. The engine is then idle, at least for this
/// instant.
void end_step(EngineState& s, Recorder& recorder, sim::Time now);

/// Begins the steps of the jump that start before `now`. It changes no decision, but must precede
/// reads of the memory and requests that join or leave.
void catch_up(EngineState& s, Recorder& recorder, sim::Time now);

/// Ends the run: advances state and counters to `end`, inclusive.
void stop(EngineState& s, Recorder& recorder, sim::Time end);

}  // namespace spillway::instance
