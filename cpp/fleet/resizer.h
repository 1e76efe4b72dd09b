#pragma once

#include <cstdint>
#include <optional>

#include "fleet/autoscaler.h"
#include "fleet/config.h"
#include "fleet/fleet.h"
#include "fleet/target_scaler.h"
#include "sim/time.h"

namespace spillway::fleet {

/// Resizes a fleet by its target and its autoscaler.
class Resizer {
 public:
  explicit Resizer(const Fleet& config);

  /// Number of instances to be in service from the next `apply` on.
  void set_target(std::int64_t instances) { target_ = instances; }
  /// Whether a poll that is due by `now` reads the load of the fleet.
  bool reads_load(sim::Time now) const { return target_scaler_ && next_poll_ <= now; }
  /// Applies a new target, then the poll that is due by `now`. `shed`: requests shed since the
  /// start; `load`: needed if it `reads_load`.
  void apply(FleetState& fleet, std::int64_t queued, std::int64_t shed, sim::Time now,
             const FleetLoad& load = {});
  /// Before when polls change nothing while no request is queued or shed; 0: the next one may.
  /// Precondition: none is queued.
  sim::Time settled_until(const FleetState& fleet) const {
    return scaler_ && !target_ ? scaler_->settled_until(fleet.started()) : sim::Time{0};
  }
  /// Time between polls.
  sim::Time poll_period() const { return poll_period_; }
  /// Skips polls that change nothing. They end before `settled_until`.
  void skip(std::int64_t polls) {
    if (scaler_) scaler_->repeat(polls, poll_period_);
    next_poll_ += sim::Time{polls * poll_period_.ns};
  }
  /// Time of the next poll, 0 with a new target; kForever: none.
  sim::Time next() const { return target_ ? sim::Time{0} : next_poll_; }

 private:
  std::optional<std::int64_t> target_;  // not applied yet
  std::optional<ScalerState> scaler_;
  std::optional<TargetScalerState> target_scaler_;
  sim::Time poll_period_{0};
  sim::Time next_poll_ = sim::kForever;
};

}  // namespace spillway::fleet
