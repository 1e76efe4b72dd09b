#include "fleet/fleet.h"

#include <algorithm>

namespace spillway::fleet {

using sim::InstanceId;
using sim::Time;

FleetState::FleetState(const Fleet& config, std::size_t num_instances)
    : num_instances_(num_instances),
      startup_(sim::from_seconds(config.startup_s)),
      reported_(sim::from_seconds(config.reported_ready_after_s.value_or(config.startup_s))),
      serves_at_(num_instances, Time{0}),
      since_(num_instances, Time{0}),
      in_service_(num_instances, Time{0}) {
  const auto all = static_cast<std::int64_t>(num_instances);
  ready_at_.assign(static_cast<std::size_t>(std::min(config.initial_instances.value_or(all), all)),
                   Time{0});
  update(Time{0});
}

void FleetState::resize(std::int64_t instances, Time now) {
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(instances, 0));
  while (ready_at_.size() > std::min(wanted, num_instances_)) {
    ready_at_.pop_back();
    in_service_[ready_at_.size()] += now - since_[ready_at_.size()];
  }
  while (ready_at_.size() < std::min(wanted, num_instances_)) {
    since_[ready_at_.size()] = now;
    serves_at_[ready_at_.size()] = now + startup_;
    ready_at_.push_back(now + reported_);
  }
}

Time FleetState::in_service(InstanceId id, Time end) const {
  const Time before = in_service_[id.index()];
  const bool is_in = id.index() < ready_at_.size() && since_[id.index()] < end;
  return is_in ? before + (end - since_[id.index()]) : before;
}

Time FleetState::next_ready() const {
  Time next = sim::kForever;
  for (auto i = static_cast<std::size_t>(num_ready_); i < ready_at_.size(); ++i)
    next = std::min(next, ready_at_[i]);
  return next;
}

void FleetState::update(Time now) {
  num_ready_ =
      std::count_if(ready_at_.begin(), ready_at_.end(), [&](Time at) { return at <= now; });
  if (num_ready_ == 0) return;
  ready_.clear();
  for (std::size_t i = 0; i < ready_at_.size(); ++i) {
    if (ready_at_[i] <= now) ready_.push_back(InstanceId{i});
  }
}

}  // namespace spillway::fleet
