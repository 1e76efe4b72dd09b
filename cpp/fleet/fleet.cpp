#include "fleet/fleet.h"

#include <algorithm>
#include <utility>

namespace spillway::fleet {

using sim::InstanceId;
using sim::Time;

namespace {

std::vector<InstanceId> first(std::size_t instances) {
  std::vector<InstanceId> ids;
  ids.reserve(instances);
  for (std::size_t i = 0; i < instances; ++i) ids.emplace_back(i);
  return ids;
}

std::vector<Time> at_start(const auto& size, const std::vector<InstanceId>& members) {
  const auto all = static_cast<std::int64_t>(members.size());
  const std::int64_t initial = std::min(size.initial_instances.value_or(all), all);
  return std::vector<Time>(static_cast<std::size_t>(initial), Time{0});
}

}  // namespace

FleetState::FleetState(const Fleet& config, std::size_t num_instances)
    : FleetState(config, num_instances,
                 {{first(num_instances), at_start(config, first(num_instances)), {}}}) {}

FleetState::FleetState(const Fleet& config, std::vector<InstanceId> prefill,
                       std::vector<InstanceId> decode)
    : FleetState(config, prefill.size() + decode.size(),
                 {{prefill, at_start(config.prefill, prefill), {}},
                  {decode, at_start(config.decode, decode), {}}}) {}

FleetState::FleetState(const Fleet& config, std::size_t num_instances, std::vector<Pool> pools)
    : startup_(sim::from_seconds(config.startup_s)),
      reported_(sim::from_seconds(config.reported_ready_after_s.value_or(config.startup_s))),
      pools_(std::move(pools)),
      serves_at_(num_instances, Time{0}),
      since_(num_instances, sim::kUnset),
      in_service_(num_instances, Time{0}) {
  for (const Pool& pool : pools_) {
    for (std::size_t i = 0; i < pool.ready_at.size(); ++i) {
      since_[pool.members[i].index()] = Time{0};
    }
  }
  update(Time{0});
}

void FleetState::resize(std::size_t number, std::int64_t instances, Time now) {
  Pool& pool = pools_[number];
  const auto wanted =
      std::min(static_cast<std::size_t>(std::max<std::int64_t>(instances, 0)), pool.members.size());
  while (pool.ready_at.size() > wanted) {
    pool.ready_at.pop_back();
    const std::size_t left = pool.members[pool.ready_at.size()].index();
    in_service_[left] += now - std::exchange(since_[left], sim::kUnset);
  }
  while (pool.ready_at.size() < wanted) {
    const std::size_t joined = pool.members[pool.ready_at.size()].index();
    since_[joined] = now;
    serves_at_[joined] = now + startup_;
    pool.ready_at.push_back(now + reported_);
    next_ready_ = std::min(next_ready_, now + reported_);
  }
}

Time FleetState::in_service(InstanceId id, Time end) const {
  const Time before = in_service_[id.index()];
  const Time since = since_[id.index()];
  return sim::is_set(since) && since < end ? before + (end - since) : before;
}

Time FleetState::next_ready() const { return next_ready_; }

void FleetState::set_failed(InstanceId id, bool is_known) {
  has_failed_.resize(since_.size());
  has_failed_[id.index()] = is_known;
}

bool FleetState::update(Time now) {
  bool has_changed = false;
  next_ready_ = sim::kForever;
  num_ready_ = 0;
  for (Pool& pool : pools_) {
    const std::size_t before = pool.ready.size();
    pool.ready.clear();
    for (std::size_t i = 0; i < pool.ready_at.size(); ++i) {
      const InstanceId id = pool.members[i];
      const bool is_due = pool.ready_at[i] <= now;
      if (!is_due) next_ready_ = std::min(next_ready_, pool.ready_at[i]);
      if (is_due && (has_failed_.empty() || !has_failed_[id.index()])) pool.ready.push_back(id);
    }
    num_ready_ += static_cast<std::int64_t>(pool.ready.size());
    has_changed = has_changed || pool.ready.size() != before;
  }
  if (num_ready_ == 0) return has_changed;
  ready_.clear();
  for (const Pool& pool : pools_) ready_.insert(ready_.end(), pool.ready.begin(), pool.ready.end());
  std::ranges::sort(ready_);
  return has_changed;
}

}  // namespace spillway::fleet
