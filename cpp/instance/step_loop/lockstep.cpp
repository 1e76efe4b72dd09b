#include "instance/step_loop/lockstep.h"

#include <algorithm>

#include "instance/step_loop/engine.h"
#include "sim/phase.h"

namespace spillway::instance {

using sim::Time;

void Lockstep::request_step(Time now) {
  if (activity_ != Activity::idle) return;
  if (!events_.is_due(now, engine_)) return start_step(now);
  activity_ = Activity::step_requested;
  events_.clear_alarm(engine_);
  events_.push({now, sim::Phase::step_start, engine_, engine_});
}

void Lockstep::start_step(Time now) {
  Time longest{0};
  for (StepLoopEngine* rank : ranks_) longest = std::max(longest, rank->form_batch(now));
  // The work of the ranks may have been withdrawn since the step was requested.
  if (longest == Time{0}) {
    activity_ = Activity::idle;
    return events_.clear_alarm(engine_);
  }
  activity_ = Activity::stepping;
  for (StepLoopEngine* rank : ranks_) rank->begin_common_step(longest, now);
  events_.set_alarm(engine_, now + longest);
}

void Lockstep::end_step(Time now) {
  for (StepLoopEngine* rank : ranks_) rank->end_common_step(now);
  activity_ = Activity::idle;
  const auto has_work = [](const StepLoopEngine* rank) { return rank->has_work(); };
  if (std::any_of(ranks_.begin(), ranks_.end(), has_work)) return request_step(now);
  events_.clear_alarm(engine_);
}

}  // namespace spillway::instance
