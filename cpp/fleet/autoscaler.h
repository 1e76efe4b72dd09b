#pragma once

#include <cstdint>
#include <vector>

#include "fleet/config.h"
#include "sim/time.h"

namespace spillway::fleet {

/// Computes the target number of instances at every poll.
class ScalerState {
 public:
  explicit ScalerState(const QueueScaler& config) : config_(config) {}

  /// `shed`: requests shed since the start.
  std::int64_t poll(std::int64_t queued, std::int64_t shed, std::int64_t instances, sim::Time now);
  /// Before when polls keep this number of instances while no request is queued or shed; 0: the
  /// next one may not. Precondition: none was queued at the last poll.
  sim::Time settled_until(std::int64_t instances) const;
  /// `polls` more take place, each `period` after the one before, before `settled_until`.
  void repeat(std::int64_t polls, sim::Time period);

 private:
  /// Polls with the same result, at equal intervals.
  struct Polls {
    sim::Time first;
    sim::Time period;
    std::int64_t count;
    std::int64_t value;

    sim::Time last() const { return first + sim::Time{(count - 1) * period.ns}; }
  };

  static void add(std::vector<Polls>& polls, sim::Time now, std::int64_t value);
  void forget_shed(sim::Time since);

  QueueScaler config_;
  std::vector<Polls> recommendations_;  // of the longer stabilization window
  std::vector<Polls> shed_;             // totals in the window, and the last one before it
  sim::Time last_added_ = sim::kUnset;
  sim::Time last_removed_ = sim::kUnset;
};

}  // namespace spillway::fleet
