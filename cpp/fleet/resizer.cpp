#include "fleet/resizer.h"

#include <utility>
#include <variant>

namespace spillway::fleet {

Resizer::Resizer(const Fleet& config) : target_(config.target_instances) {
  if (const auto* scaler = std::get_if<QueueScaler>(&config.autoscaler)) {
    scaler_.emplace(*scaler);
    poll_period_ = sim::from_seconds(scaler->poll_s);
    next_poll_ = poll_period_;
  }
  if (const auto* scaler = std::get_if<TargetScaler>(&config.autoscaler)) {
    target_scaler_.emplace(*scaler);
    poll_period_ = sim::from_seconds(scaler->poll_s);
    next_poll_ = poll_period_;
  }
}

void Resizer::apply(FleetState& fleet, std::int64_t queued, std::int64_t shed, sim::Time now,
                    const FleetLoad& load) {
  if (const auto target = std::exchange(target_, std::nullopt)) fleet.resize(*target, now);
  if (next_poll_ > now) return;
  const std::int64_t started = fleet.started();
  if (scaler_) {
    fleet.resize(scaler_->poll(queued, shed, started, now), now);
  } else if (target_scaler_) {
    fleet.resize(target_scaler_->poll(load, started, now), now);
  }
  next_poll_ += poll_period_;
}

}  // namespace spillway::fleet
