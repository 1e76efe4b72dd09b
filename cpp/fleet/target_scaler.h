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
};

}  // namespace spillway::fleet
