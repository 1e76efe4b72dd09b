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

 private:
  struct Recommendation {
    sim::Time at;
    std::int64_t instances;
  };
  struct Shed {
    sim::Time at;
    std::int64_t total;
  };

  QueueScaler config_;
  std::vector<Recommendation> recommendations_;  // of the longer stabilization window
  std::vector<Shed> shed_;                       // in the window, and the last one before it
  sim::Time last_added_ = sim::kUnset;
  sim::Time last_removed_ = sim::kUnset;
};

}  // namespace spillway::fleet
