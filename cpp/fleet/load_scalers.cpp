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

// The thresholds of a planner that an instance is above, times `share`.
struct Above {
  bool prefill = false;
  bool decode = false;
};

Above above(const PlannerScaler& config, const FleetLoad& load, const InstanceLoad& instance,
            double share) {
  const bool by_latency = config.optimization_target == PlannerTarget::sla;
  const bool prefill = by_latency
                           ? instance.ttft_s > share * config.ttft_s
                           : instance.prefill_tokens > share * config.prefill_tokens_threshold;
  const bool decode = by_latency
                          ? instance.itl_s > share * config.itl_s
                          : instance.kv_utilization > share * config.kv_utilization_threshold;
  return {prefill && load.scaled != Scaled::decode, decode && load.scaled != Scaled::prefill};
}

// By loads every instance is busy in some way, by latencies all of them in the same.
bool is_busy(const PlannerScaler& config, const FleetLoad& load) {
  const auto all = [&](const auto& is_so) {
    return std::ranges::all_of(load.instances, [&](const InstanceLoad& instance) {
      return is_so(above(config, load, instance, 1));
    });
  };
  if (config.optimization_target == PlannerTarget::load) {
    return all([](const Above& is) { return is.prefill || is.decode; });
  }
  return all([](const Above& is) { return is.prefill; }) ||
         all([](const Above& is) { return is.decode; });
}

bool has_room(const PlannerScaler& config, const FleetLoad& load) {
  return std::ranges::none_of(load.instances, [&](const InstanceLoad& instance) {
    const Above is = above(config, load, instance, config.sensitivity);
    return is.prefill || is.decode;
  });
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
  if (is_busy(config, load)) return bounded(config, instances + 1);
  if (!has_room(config, load)) return bounded(config, instances);
  return bounded(config,
                 load.queued > 0 ? std::max<std::int64_t>(instances - 1, 1) : instances - 1);
}

}  // namespace spillway::fleet
