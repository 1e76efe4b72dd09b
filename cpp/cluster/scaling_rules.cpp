#include "cluster/scaling_rules.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "cluster/context.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

namespace {

using Violations = std::vector<sim::Violation>;

// Calls `check` with the least and the most instances of the autoscaler, if there is one.
void with_range(const fleet::Autoscaler& autoscaler, const auto& check) {
  std::visit(
      [&]<class Scaler>(const Scaler& scaler) {
        if constexpr (requires { scaler.max_instances; }) {
          check(scaler.min_instances, scaler.max_instances);
        }
      },
      autoscaler);
}

const fleet::ScalerMetric* metric_of_controller(const fleet::Autoscaler& autoscaler) {
  const auto* scaler = std::get_if<fleet::TargetScaler>(&autoscaler);
  const bool reads = scaler && (scaler->metric == fleet::ScalerMetric::sensor ||
                                scaler->metric == fleet::ScalerMetric::limit_decreases);
  return reads ? &scaler->metric : nullptr;
}

// `size`: of a fleet or a pool of `all` instances, at `path`.
void check_size(const auto& size, const std::string& path, std::size_t all, const std::string& of,
                Violations& out) {
  const auto must_exist = [&](std::optional<std::int64_t> instances, const char* field) {
    if (!instances || std::cmp_less_equal(*instances, all)) return;
    out.push_back({sim::join_path(path, field), std::to_string(*instances),
                   "must be <= the number of instances" + of + " (" + std::to_string(all) + ")"});
  };
  must_exist(size.initial_instances, "initial_instances");
  must_exist(size.target_instances, "target_instances");
  with_range(size.autoscaler, [&](std::int64_t least, std::int64_t most) {
    must_exist(most, "autoscaler.max_instances");
    if (least <= most) return;
    out.push_back({sim::join_path(path, "autoscaler.min_instances"), std::to_string(least),
                   "must be <= max_instances (" + std::to_string(most) + ")"});
  });
}

void metric_is_measured(const Simulation& simulation, Violations& out) {
  const fleet::ScalerMetric* metric = metric_of_controller(simulation.fleet.autoscaler);
  if (!metric || gateway::is_controlled(simulation.gateway)) return;
  out.push_back({"fleet.autoscaler.metric", std::string(sim::name_of(*metric)),
                 "needs a gateway.controller, whose sensor and actions it reads"});
}

// `path`: of the fleet or of a pool of it.
void latencies_can_be_estimated(const Simulation& simulation, const fleet::Autoscaler& autoscaler,
                                const std::string& path, Violations& out) {
  const auto is_known = [](const instance::InstanceGroup& group) {
    return std::holds_alternative<instance::StepLoop>(group.plant) &&
           group.speculative_decoding.num_drafts == 0;
  };
  if (!fleet::reads_latencies(autoscaler) || std::ranges::all_of(simulation.instances, is_known)) {
    return;
  }
  out.push_back({sim::join_path(path, "autoscaler.optimization_target"), "sla",
                 "needs instances with the plant step_loop and without drafts, from whose step "
                 "times latencies are estimated"});
}

void check_pool(const fleet::PoolSize& size, const char* name,
                const std::vector<sim::InstanceId>& members, Violations& out) {
  const std::string path = sim::join_path("fleet", name);
  check_size(size, path, members.size(), std::string(" of the ") + name + " pool", out);
  const fleet::ScalerMetric* metric = metric_of_controller(size.autoscaler);
  if (!metric) return;
  out.push_back({sim::join_path(path, "autoscaler.metric"), std::string(sim::name_of(*metric)),
                 "cannot be a metric of a pool: it is of the fleet as a whole"});
}

void check_pools(const Simulation& simulation, Violations& out) {
  const fleet::Fleet& fleet = simulation.fleet;
  const auto budget = fleet.max_pool_instances;
  if (!fleet.has_own_pools() && !budget) return;
  if (!has_separate_pools(simulation)) {
    const char* field = !fleet.prefill.is_constant()  ? "fleet.prefill"
                        : !fleet.decode.is_constant() ? "fleet.decode"
                                                      : "fleet.max_pool_instances";
    out.push_back(
        {field, "set", "needs instances with the roles prefill and decode, and none with both"});
    return;
  }
  check_pool(fleet.prefill, "prefill", instances_of(simulation, instance::Role::prefill), out);
  check_pool(fleet.decode, "decode", instances_of(simulation, instance::Role::decode), out);
  std::int64_t least = 0;
  const auto add = [&](std::int64_t fewest, std::int64_t) { least += fewest; };
  with_range(fleet.prefill.autoscaler, add);
  with_range(fleet.decode.autoscaler, add);
  if (!budget || least <= *budget) return;
  out.push_back(
      {"fleet.max_pool_instances", std::to_string(*budget),
       "must be >= the sum of min_instances of both pools (" + std::to_string(least) + ")"});
}

}  // namespace

Violations violations_by_scaling(const Simulation& simulation) {
  Violations out;
  check_size(simulation.fleet, "fleet", num_instances(simulation), "", out);
  latencies_can_be_estimated(simulation, simulation.fleet.autoscaler, "fleet", out);
  latencies_can_be_estimated(simulation, simulation.fleet.prefill.autoscaler, "fleet.prefill", out);
  latencies_can_be_estimated(simulation, simulation.fleet.decode.autoscaler, "fleet.decode", out);
  metric_is_measured(simulation, out);
  check_pools(simulation, out);
  return out;
}

}  // namespace spillway::cluster
