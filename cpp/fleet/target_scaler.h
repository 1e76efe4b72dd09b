#pragma once

#include <cstdint>
#include <vector>

#include "fleet/config.h"
#include "sim/time.h"

namespace spillway::fleet {

/// The load of a fleet at a poll: totals over its gateways and its ready instances.
struct FleetLoad {
  std::int64_t queued = 0;
  std::int64_t in_flight = 0;
  double waiting = 0;
  double running = 0;
  double kv_utilization = 0;
};

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

  double total(const FleetLoad& load) const;
  std::int64_t recommended(const FleetLoad& load, std::int64_t instances) const;

  TargetScaler config_;
  std::vector<Recommendation> recommendations_;  // of the longer stabilization window
};

}  // namespace spillway::fleet
