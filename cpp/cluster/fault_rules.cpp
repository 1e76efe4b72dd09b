#include "cluster/fault_rules.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/changes.h"
#include "cluster/context.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

namespace {

std::string text_of(const auto& setting) { return sim::to_text(sim::encode(setting)); }

// Of the faults of instances, or of the gateway.
void must_exist(const Simulation& simulation, bool of_gateway, std::vector<sim::Violation>& out) {
  const std::int64_t all = of_gateway ? simulation.gateway.replicas
                                      : static_cast<std::int64_t>(num_instances(simulation));
  for (std::size_t i = 0; i < simulation.changes.size(); ++i) {
    const std::vector<fleet::Fault>& faults = simulation.changes[i].faults;
    const std::string list = sim::index_path("changes", i) + ".faults";
    for (std::size_t j = 0; j < faults.size(); ++j) {
      const std::int64_t number = fleet::number_of(faults[j]);
      if (fleet::is_of_gateway(faults[j]) != of_gateway || number < all) continue;
      out.push_back({sim::index_path(list, j) + (of_gateway ? ".gateway" : ".instance"),
                     std::to_string(number),
                     "must be one of the " + std::to_string(all) +
                         (of_gateway ? " replicas of the gateway" : " instances") + ", from 0"});
    }
  }
}

// A prompt that waits to be read cannot be computed again.
void keep_prompts(const Simulation& simulation, std::vector<sim::Violation>& out) {
  const auto has_role = [](const instance::InstanceGroup& group) {
    return group.role != instance::Role::both;
  };
  if (std::ranges::none_of(simulation.instances, has_role)) return;
  for (std::size_t i = 0; i < simulation.changes.size(); ++i) {
    const std::vector<fleet::Fault>& faults = simulation.changes[i].faults;
    for (std::size_t j = 0; j < faults.size(); ++j) {
      if (!std::holds_alternative<fleet::KvLoss>(faults[j])) continue;
      out.push_back({sim::index_path(sim::index_path("changes", i) + ".faults", j),
                     std::string(fleet::KvLoss::kind),
                     "cannot be where instances have roles (instances[].role)"});
    }
  }
}

// What an instance that fails has been shown to do.
void must_be_plain(const instance::InstanceGroup& group, const std::string& path,
                   std::vector<sim::Violation>& out) {
  const auto require = [&](const char* field, bool holds, std::string value,
                           const std::string& needed) {
    if (holds) return;
    out.push_back(
        {sim::join_path(path, field), std::move(value),
         "must be " + needed + " where instances fail (changes[].faults, fleet.breakdowns)"});
  };
  require("plant", std::holds_alternative<instance::StepLoop>(group.plant), text_of(group.plant),
          "step_loop");
  require("lockstep_ranks", !group.lockstep_ranks || group.data_parallel_size == 1, "true",
          "false");
  require("front_end", !group.front_end.is_on(), text_of(group.front_end), "off");
  require("completion", group.completion == instance::Completion::step_end, "step_start",
          "step_end");
}

// Only what a request has emitted goes on with it.
void keep_emitted(const Simulation& simulation, std::vector<sim::Violation>& out) {
  for (std::size_t i = 0; i < simulation.instances.size(); ++i) {
    const instance::InstanceGroup& group = simulation.instances[i];
    const std::string path = sim::index_path("instances", i);
    if (group.preemption != instance::Preemption::keep_emitted) {
      out.push_back({sim::join_path(path, "preemption"), "restart",
                     "must be keep_emitted where requests migrate (fleet.migration)"});
    }
    if (group.speculative_decoding.num_drafts > 0) {
      out.push_back({sim::join_path(path, "speculative_decoding.num_drafts"),
                     std::to_string(group.speculative_decoding.num_drafts),
                     "must be 0 where requests migrate (fleet.migration)"});
    }
  }
}

}  // namespace

std::vector<sim::Violation> violations_by_faults(const Simulation& simulation) {
  std::vector<sim::Violation> out;
  if (!has_faults(simulation)) return out;
  must_exist(simulation, false, out);
  for (std::size_t i = 0; i < simulation.instances.size(); ++i) {
    must_be_plain(simulation.instances[i], sim::index_path("instances", i), out);
  }
  keep_prompts(simulation, out);
  if (has_migration(simulation)) keep_emitted(simulation, out);
  if (has_migration(simulation) && simulation.disaggregation.prefill_max_retries > 0) {
    out.push_back({"fleet.migration.limit", std::to_string(simulation.fleet.migration.limit),
                   "must be 0 where prefill legs are sent again "
                   "(disaggregation.prefill_max_retries)"});
  }
  if (gateway::needs_of(simulation.gateway).exact_estimate) {
    out.push_back({"gateway.admission", text_of(simulation.gateway.admission),
                   "cannot predict exactly (estimator: exact) where instances fail"});
  }
  if (simulation.metrics.uses_reported_latencies()) {
    out.push_back({"metrics.accounting",
                   std::string(sim::EnumNames<metrics::Accounting>::names.at(
                       static_cast<std::size_t>(simulation.metrics.accounting))),
                   "must be clock where instances fail"});
  }
  return out;
}

// What has been shown to work where replicas of the gateway crash.
std::vector<sim::Violation> violations_by_gateway_faults(const Simulation& simulation) {
  std::vector<sim::Violation> out;
  if (!has_gateway_faults(simulation)) return out;
  must_exist(simulation, true, out);
  const auto require = [&](bool holds, std::string path, std::string value,
                           const std::string& needed) {
    if (holds) return;
    out.push_back({std::move(path), std::move(value),
                   "must " + needed + " where the gateway crashes (changes[].faults)"});
  };
  require(!simulation.fleet.migration.is_on(), "fleet.migration.limit",
          std::to_string(simulation.fleet.migration.limit), "be 0");
  for (std::size_t i = 0; i < simulation.instances.size(); ++i) {
    const instance::InstanceGroup& group = simulation.instances[i];
    const std::string path = sim::index_path("instances", i);
    require(group.role == instance::Role::both, sim::join_path(path, "role"),
            std::string(sim::name_of(group.role)), "be both");
    require(
        !group.notices_late(), sim::join_path(path, "notices_departure_after_s"),
        group.notices_departure_after_s ? sim::to_text(*group.notices_departure_after_s) : "null",
        "be 0");
  }
  if (gateway::needs_of(simulation.gateway).exact_estimate) {
    require(false, "gateway.admission", text_of(simulation.gateway.admission),
            "not predict exactly (estimator: exact)");
  }
  return out;
}

}  // namespace spillway::cluster
