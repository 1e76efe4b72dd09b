#include "fleet/target_scaler.h"

#include <algorithm>
#include <cmath>

namespace spillway::fleet {

using sim::Time;

double TargetScalerState::total(const FleetLoad& load, std::int64_t instances) const {
  const auto sum = [&](const auto& of) {
    double total = 0;
    for (const InstanceLoad& instance : load.instances) total += of(instance);
    return total;
  };
  switch (config_.metric) {
    case ScalerMetric::in_flight:
      return static_cast<double>(load.in_flight);
    case ScalerMetric::queued:
      return static_cast<double>(load.queued);
    case ScalerMetric::waiting:
      return sum([](const InstanceLoad& instance) { return instance.waiting; });
    case ScalerMetric::running:
      return sum([](const InstanceLoad& instance) { return instance.running; });
    case ScalerMetric::seats:
      return sum(
          [](const InstanceLoad& instance) { return instance.running / instance.max_num_seqs; });
    case ScalerMetric::kv_utilization:
      return sum([](const InstanceLoad& instance) { return instance.kv_utilization; });
    case ScalerMetric::sensor:
      return load.sensor * static_cast<double>(instances);
    case ScalerMetric::limit_decreases:
      break;
  }
  return load.limit_decreases * static_cast<double>(instances);
}

std::int64_t TargetScalerState::recommended(const FleetLoad& load, std::int64_t instances) const {
  const auto least = static_cast<double>(config_.min_instances);
  const auto most = static_cast<double>(std::max(config_.min_instances, config_.max_instances));
  const auto present = static_cast<double>(instances);
  const double seen = total(load, instances);
  double wanted = std::isnan(seen) ? present : std::ceil(seen / config_.target);
  if (instances > 0 && std::abs(seen / (config_.target * present) - 1) <= config_.tolerance) {
    wanted = present;
  }
  if (load.queued > 0) wanted = std::max(wanted, 1.0);
  return static_cast<std::int64_t>(std::clamp(wanted, least, most));
}

std::int64_t TargetScalerState::poll(const FleetLoad& load, std::int64_t instances, Time now) {
  const Time up = sim::from_seconds(config_.up_stabilization_s);
  const Time down = sim::from_seconds(config_.down_stabilization_s);
  recommendations_.push_back({now, recommended(load, instances)});
  std::erase_if(recommendations_,
                [&](const Recommendation& past) { return now - past.at > std::max(up, down); });
  std::int64_t least = recommendations_.back().instances;
  std::int64_t most = least;
  for (const Recommendation& past : recommendations_) {
    if (now - past.at <= up) least = std::min(least, past.instances);
    if (now - past.at <= down) most = std::max(most, past.instances);
  }
  // A recommendation counts only if it has held for the whole window.
  const auto present = static_cast<double>(instances);
  if (least > instances && now >= up) {
    const auto grown = static_cast<std::int64_t>(std::floor(present * (1 + config_.up_share)));
    return std::min(least, std::max(grown, instances + config_.up_instances));
  }
  if (most < instances && now >= down) {
    const auto shrunk = static_cast<std::int64_t>(std::ceil(present * (1 - config_.down_share)));
    return std::max(most, std::min(shrunk, instances - 1));
  }
  return instances;
}

}  // namespace spillway::fleet
