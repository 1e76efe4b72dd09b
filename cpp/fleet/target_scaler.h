#pragma once

#include <cstdint>
#include <vector>

#include "fleet/config.h"
#include "fleet/load.h"
#include "sim/time.h"

namespace spillway::fleet {

/// Computes the target number of instances at every poll, by Kubernetes' rule.
class TargetScalerState {
 public:
  explicit TargetScalerState(const TargetScaler& config) : config_(config) {}

  /// `instances`: in service, ready or not.
  std::int64_t poll(const FleetLoad& load, std::int64_t instances, sim::Time now);
  /// Whether further polls keep this number while the system is empty and its metrics stay the
  /// same.
  bool is_settled(std::int64_t instances) const;
  /// Such polls take place, the last one at `last`.
  void repeat(sim::Time last);

 private:
  struct Recommendation {
    sim::Time at;
    std::int64_t instances;
  };

  // NaN: not known.
  double total(const FleetLoad& load, std::int64_t instances) const;
  std::int64_t recommended(const FleetLoad& load, std::int64_t instances) const;

  TargetScaler config_;
  std::vector<Recommendation> recommendations_;  // of the longer stabilization window
  bool is_known_ = false;                        // the metric at the last poll
};

}  // namespace spillway::fleet
