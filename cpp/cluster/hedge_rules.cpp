#include "cluster/hedge_rules.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cluster/context.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

std::vector<sim::Violation> violations_by_hedges(const Simulation& simulation) {
  std::vector<sim::Violation> out;
  if (!has_hedges(simulation)) return out;
  const auto require = [&](bool holds, std::string path, std::string value,
                           const std::string& needed) {
    if (holds) return;
    out.push_back({std::move(path), std::move(value),
                   "must " + needed + " where clients hedge (reaction.hedge)"});
  };
  const std::size_t instances = num_instances(simulation);
  require(instances >= 2, "instances", std::to_string(instances) + " instances",
          "hold at least 2 instances, of which each copy takes one");
  require(!has_pools(simulation), "instances", "groups with roles", "have no roles");
  require(!has_models(simulation), "tenants", "with models", "name no model");
  require(!has_faults(simulation) && !has_gateway_faults(simulation), "changes", "with faults",
          "have no faults, and fleet.breakdowns must be unset,");
  require(simulation.fleet.is_constant(), "fleet", sim::to_text(sim::encode(simulation.fleet)),
          "keep all instances ready");
  require(simulation.gateway.decision_latency_s == 0, "gateway.decision_latency_s",
          sim::to_text(simulation.gateway.decision_latency_s), "be 0");
  require(!simulation.metrics.uses_reported_latencies(), "metrics.accounting",
          std::string(sim::name_of(simulation.metrics.accounting)), "be clock");
  for (std::size_t i = 0; i < simulation.instances.size(); ++i) {
    require(simulation.instances[i].completion == instance::Completion::step_end,
            sim::join_path(sim::index_path("instances", i), "completion"), "step_start",
            "be step_end");
  }
  for (std::size_t i = 0; i < simulation.changes.size(); ++i) {
    require(simulation.changes[i].submit.empty(),
            sim::join_path(sim::index_path("changes", i), "submit"),
            std::to_string(simulation.changes[i].submit.size()) + " requests", "be empty");
  }
  return out;
}

}  // namespace spillway::cluster
