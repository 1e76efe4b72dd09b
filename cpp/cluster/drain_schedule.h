#pragma once

#include <cstdint>

#include "cluster/context.h"
#include "sim/time.h"

namespace spillway::cluster {

/// The schedule of drains of one gateway's queues: on request, after ticks, and periodically.
///
/// Periodically, because the metrics of instances may open a limit without an event at the gateway:
/// while requests wait for that, a dispatch is attempted periodically, as in the endpoint picker of
/// llm-d. With `one_per_attempt`, a series of attempts begins one period after requests were first
/// left waiting, and ends with the first attempt after which none waits. With `one_per_cycle`, its
/// attempts are at whole multiples of the period. Attempts of a series that cannot succeed are
/// skipped, unless cycles without waiting requests count: then a series goes on while a request is
/// in the system.
class DrainSchedule {
 public:
  /// `gateway`: the subject of its events; `tie`: their place among those of an instant.
  DrainSchedule(Context& context, std::uint32_t gateway, std::uint32_t tie);

  /// Requests a drain after `delay`. True: the caller must drain now.
  [[nodiscard]] bool request(sim::Time delay);
  /// Requests a drain after an event that may release a queued request: after `delay`, or at the
  /// next attempt. True: the caller must drain now.
  [[nodiscard]] bool wake(sim::Time delay);
  /// The same, where the caller cannot drain now: other effects of the instant are to come.
  void wake_by_event(sim::Time delay);
  /// Sets whether the due drain is due to a tick alone, which does not keep a run alive.
  void attribute_to_tick(bool is_for_tick) { is_for_tick_ = is_for_tick; }

  /// An event of phase `queue_drain` or `dispatch_attempt`. True: the caller must drain.
  [[nodiscard]] bool is_due(sim::Phase phase, std::int64_t queued);
  /// The queues have been drained, and `queued` requests still wait. `may_succeed`: a later attempt
  /// may dispatch one.
  void drained(std::int64_t queued, bool may_succeed) {
    if (is_one_per_attempt_ || polls_) schedule_attempt(queued, may_succeed);
  }

  /// Whether future metrics of the instances may open a limit.
  bool signals_may_open_gate() const {
    return context_.num_in_flight > 0 || context_.now <= context_.last_change + max_signal_delay_;
  }
  /// Whether a drain dispatches at most one request.
  bool is_one_per_attempt() const { return is_one_per_attempt_; }
  bool is_cyclic() const { return is_cyclic_; }
  bool counts_idle_cycles() const { return counts_idle_cycles_; }
  /// Whether a drain is due for other reasons than a tick.
  bool is_pending() const { return (sim::is_set(due_) || has_attempt_) && !is_for_tick_; }

 private:
  void push_drain(sim::Time delay);
  void wake_attempts();
  void schedule_attempt(std::int64_t queued, bool may_succeed);
  sim::Time first_attempt() const;
  void push_attempt(sim::Time at);
  void resume();

  Context& context_;
  std::uint32_t gateway_;
  std::uint32_t tie_;
  bool is_cyclic_;
  bool counts_idle_cycles_;
  bool is_one_per_attempt_;
  bool polls_;  // a limit depends on metrics, without `one_per_attempt`
  sim::Time period_;
  sim::Time max_signal_delay_;  // time after which past changes have normally been reported
  sim::Time due_ = sim::kUnset;
  bool is_for_tick_ = false;              // of the due drain or attempt
  bool has_attempt_ = false;              // an attempt is due
  sim::Time next_attempt_ = sim::kUnset;  // of a series, whether or not it is due
};

}  // namespace spillway::cluster
