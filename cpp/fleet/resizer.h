#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "fleet/autoscaler.h"
#include "fleet/config.h"
#include "fleet/fleet.h"
#include "fleet/load.h"
#include "fleet/load_scalers.h"
#include "fleet/target_scaler.h"
#include "sim/time.h"

namespace spillway::fleet {

/// Resizes a fleet, or a pool of it, by its target and its autoscaler.
class Resizer {
 public:
  /// `pool`: as in FleetState.
  Resizer(std::optional<std::int64_t> target, const Autoscaler& autoscaler, std::size_t pool);

  /// Number of instances to be in service from the next `apply` on.
  void set_target(std::int64_t instances) { target_ = instances; }
  /// Whether a poll that is due by `now` reads what instances and controllers report.
  bool reads_reports(sim::Time now) const {
    return next_poll_ <= now && !std::holds_alternative<ScalerState>(scaler_);
  }
  /// Applies a new target, then the poll that is due by `now`, which adds instances up to `most`.
  /// `load`: with the reports only if it `reads_reports`.
  void apply(FleetState& fleet, sim::Time now, const FleetLoad& load, std::int64_t most);
  /// Before when polls change nothing while no request is queued or shed; 0: the next one may.
  /// Precondition: none is queued.
  sim::Time settled_until(const FleetState& fleet) const {
    const auto* queues = std::get_if<ScalerState>(&scaler_);
    return queues && !target_ ? queues->settled_until(fleet.started(pool_)) : sim::Time{0};
  }
  /// Time between polls.
  sim::Time poll_period() const { return poll_period_; }
  /// Skips polls that change nothing. They end before `settled_until`.
  void skip(std::int64_t polls) {
    if (auto* queues = std::get_if<ScalerState>(&scaler_)) queues->repeat(polls, poll_period_);
    next_poll_ += sim::Time{polls * poll_period_.ns};
  }
  /// Whether a target or polls may add instances to the pool.
  bool has_room(const FleetState& fleet) const {
    return target_ || fleet.started(pool_) < std::min(max_instances_, fleet.size(pool_));
  }
  /// Whether the number of instances stays while this load does: polls have seen the same for as
  /// long as the autoscaler remembers. `queued`, `shed`: as in FleetLoad.
  bool is_settled(std::int64_t queued, std::int64_t shed) const {
    if (target_) return false;
    if (next_poll_ == sim::kForever) return true;
    return queued == last_load_.queued && shed == last_load_.shed &&
           next_poll_ - poll_period_ > same_since_ + memory_;
  }
  /// Time of the next poll, 0 with a new target; kForever: none.
  sim::Time next() const { return target_ ? sim::Time{0} : next_poll_; }

 private:
  std::int64_t polled(const FleetLoad& load, std::int64_t started, sim::Time now);

  std::size_t pool_;
  std::optional<std::int64_t> target_;  // not applied yet
  std::variant<std::monostate, ScalerState, TargetScalerState, WvaScaler, PlannerScaler> scaler_;
  sim::Time poll_period_{0};
  sim::Time next_poll_ = sim::kForever;
  std::int64_t max_instances_ = 0;
  sim::Time memory_{0};  // how far back a poll's decision may reach
  FleetLoad last_load_;  // at the last poll
  std::int64_t last_started_ = -1;
  sim::Time same_since_{0};  // the first poll that saw this
};

}  // namespace spillway::fleet
