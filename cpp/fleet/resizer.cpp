#include "fleet/resizer.h"

#include <algorithm>
#include <variant>

namespace spillway::fleet {

Resizer::Resizer(const Fleet& config) : changes_(config.schedule) {
  std::sort(changes_.begin(), changes_.end(),
            [](const FleetChange& a, const FleetChange& b) { return a.at_s < b.at_s; });
  if (const auto* scaler = std::get_if<QueueScaler>(&config.autoscaler)) {
    scaler_.emplace(*scaler);
    poll_period_ = sim::from_seconds(scaler->poll_s);
    next_poll_ = poll_period_;
  }
}

void Resizer::apply(FleetState& fleet, std::int64_t queued, std::int64_t shed, sim::Time now) {
  while (next_change_ < changes_.size() && sim::from_seconds(changes_[next_change_].at_s) <= now) {
    fleet.resize(changes_[next_change_++].instances, now);
  }
  if (scaler_ && next_poll_ <= now) {
    fleet.resize(scaler_->poll(queued, shed, fleet.started(), now), now);
    next_poll_ += poll_period_;
  }
}

sim::Time Resizer::next() const {
  if (next_change_ == changes_.size()) return next_poll_;
  return std::min(next_poll_, sim::from_seconds(changes_[next_change_].at_s));
}

}  // namespace spillway::fleet
