#include "fleet/load_scalers.h"

#include <algorithm>
#include <cmath>

namespace spillway::fleet {

namespace {

// The number of instances within the bounds of the autoscaler.
std::int64_t bounded(const auto& config, std::int64_t wanted) {
  return std::clamp(wanted, config.min_instances,
                    std::max(config.min_instances, config.max_instances));
}

// Of a fleet of which no instance is ready.
std::int64_t first(const FleetLoad& load, std::int64_t instances) {
  return load.queued > 0 ? std::max<std::int64_t>(instances, 1) : instances;
}

}  // namespace

std::int64_t poll(const WvaScaler& config, const FleetLoad& load, std::int64_t instances) {
  if (load.instances.empty()) return bounded(config, first(load, instances));
  double capacity = 0;
  double demand = config.queued_tokens * static_cast<double>(load.queued);
  for (const InstanceLoad& instance : load.instances) {
    capacity += instance.kv_capacity_tokens;
    demand += instance.kv_utilization * instance.kv_capacity_tokens;
    demand += config.queued_tokens * instance.waiting;
  }
  const double each =
      config.kv_utilization_threshold * capacity / static_cast<double>(load.instances.size());
  const double supply = each * static_cast<double>(instances);
  const double required = demand / config.up_threshold - supply;
  if (required > 0) {
    return bounded(config, instances + static_cast<std::int64_t>(std::ceil(required / each)));
  }
  const double spare = std::max(0.0, supply - demand / config.down_threshold);
  const std::int64_t wanted = instances - static_cast<std::int64_t>(std::floor(spare / each));
  return bounded(config, load.queued > 0 ? std::max<std::int64_t>(wanted, 1) : wanted);
}

std::int64_t poll(const PlannerScaler& config, const FleetLoad& load, std::int64_t instances) {
  if (load.instances.empty()) return bounded(config, first(load, instances));
  const auto ready = static_cast<std::int64_t>(load.instances.size());
  if (ready != instances) return instances;
  const auto is_above = [&](const InstanceLoad& instance, double share) {
    const bool prefills = load.scaled != Scaled::decode;
    const bool decodes = load.scaled != Scaled::prefill;
    return (prefills && instance.prefill_tokens > share * config.prefill_tokens_threshold) ||
           (decodes && instance.kv_utilization > share * config.kv_utilization_threshold);
  };
  const bool all_busy = std::ranges::all_of(
      load.instances, [&](const InstanceLoad& instance) { return is_above(instance, 1); });
  if (all_busy) return bounded(config, instances + 1);
  const bool all_have_room = std::ranges::none_of(
      load.instances,
      [&](const InstanceLoad& instance) { return is_above(instance, config.sensitivity); });
  if (!all_have_room) return bounded(config, instances);
  return bounded(config,
                 load.queued > 0 ? std::max<std::int64_t>(instances - 1, 1) : instances - 1);
}

}  // namespace spillway::fleet
