#pragma once

#include <cstdint>

#include "cluster/context.h"
#include "sim/time.h"

namespace spillway::cluster {

/// When the queues of one gateway are drained: on request, after ticks, and by the clock.
///
/// By the clock, because what instances report may open a gate without an event at the gateway:
/// while requests wait for that, a dispatch is attempted periodically, as in the endpoint picker of
/// llm-d. With `one_per_attempt` a series of attempts begins a period after requests were first
/// left waiting, and ends with the first attempt after which none waits. Attempts of a series that
/// cannot succeed are left out.
class DrainSchedule {
 public:
  /// `gateway`: the subject of its events.
  DrainSchedule(Context& context, std::uint32_t gateway);

  /// The queues are to be drained after `delay`. True: at once, by the caller.
  [[nodiscard]] bool request(sim::Time delay);
  /// Something has happened that may let a queued request leave: they are to be drained after
  /// `delay`, or at the next attempt. True: at once, by the caller.
  [[nodiscard]] bool wake(sim::Time delay);
  /// Whether what is due is due for a tick alone, which does not keep a run going.
  void attribute_to_tick(bool is_for_tick) { is_for_tick_ = is_for_tick; }

  /// An event of phase `queue_drain` or `dispatch_attempt`. True: the queues are to be drained.
  [[nodiscard]] bool is_due(sim::Phase phase, std::int64_t queued);
  /// They have been drained, and so many requests still wait. `may_succeed`: an attempt that
  /// follows may dispatch one.
  void drained(std::int64_t queued, bool may_succeed);

  /// Whether reports that are still to come may open a gate.
  bool signals_may_open_gate() const {
    return context_.num_in_flight > 0 || context_.now <= context_.last_change + max_signal_delay_;
  }
  bool is_one_per_attempt() const { return is_one_per_attempt_; }
  /// Whether the queues will be drained, for other reasons than a tick.
  bool is_pending() const { return (sim::is_set(due_) || has_attempt_) && !is_for_tick_; }

 private:
  void push_attempt(sim::Time at);
  void resume();

  Context& context_;
  std::uint32_t gateway_;
  bool is_one_per_attempt_;
  bool polls_;  // a limit that depends on reports, without `one_per_attempt`
  sim::Time period_;
  sim::Time max_signal_delay_;  // until everything that is over has been reported, as a rule
  sim::Time due_ = sim::kUnset;
  bool is_for_tick_ = false;              // the drain that is due, or the attempt
  bool has_attempt_ = false;              // an attempt is due
  sim::Time next_attempt_ = sim::kUnset;  // of a series, whether or not it is due
};

}  // namespace spillway::cluster
