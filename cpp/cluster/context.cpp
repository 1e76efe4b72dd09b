#include "cluster/context.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "router/router.h"
#include "workload/names.h"
#include "workload/requests.h"

namespace spillway::cluster {

namespace {

signals::Needs needs_of(const Simulation& first, std::span<const Version> later) {
  signals::Needs needs = needs_of(first);
  for (const Version& version : later) needs = needs | needs_of(version.simulation);
  return needs;
}

}  // namespace

signals::Needs needs_of(const Simulation& simulation) {
  const signals::Needs needs =
      gateway::needs_of(simulation.gateway) | router::needs_of(simulation.router);
  if (!has_pools(simulation)) return needs;
  return needs | signals::needs_of(simulation.disaggregation.decider);
}

bool depends_on_loads(const Simulation& simulation) {
  return simulation.busy_monitor.has_thresholds() || needs_of(simulation).busy_workers ||
         std::any_of(simulation.instances.begin(), simulation.instances.end(),
                     [](const auto& group) {
                       return !std::holds_alternative<instance::Open>(group.ingress);
                     });
}

bool may_retry_beside(const Simulation& simulation) {
  const auto retries = [](const workload::Reaction& reaction) {
    return std::ranges::any_of(reaction.retries, [](const workload::Retry& retry) {
      return retry.max_attempts > 1 && retry.applies_to(workload::Cause::timeout);
    });
  };
  const auto own_retries = [&](const workload::Tenant& tenant) {
    return tenant.reaction && retries(*tenant.reaction);
  };
  if (simulation.metrics.streaming) return false;
  if (has_hedges(simulation)) return true;
  return std::ranges::any_of(simulation.instances, &instance::InstanceGroup::notices_late) &&
         (retries(simulation.reaction) || std::ranges::any_of(simulation.tenants, own_retries));
}

bool has_hedges(const Simulation& simulation) {
  return simulation.reaction.hedge ||
         std::ranges::any_of(simulation.tenants, [](const workload::Tenant& tenant) {
           return tenant.reaction && tenant.reaction->hedge;
         });
}

bool names_models(const Simulation& simulation) {
  const auto names = [](const auto& named) { return !named.model.empty(); };
  const auto submits = [&](const Change& change) {
    return std::ranges::any_of(change.submit, names);
  };
  const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
  const auto* synthetic = std::get_if<workload::Synthetic>(&simulation.workload);
  return std::ranges::any_of(simulation.tenants, names) ||
         (trace && trace->requests && !trace->requests->model.empty()) ||
         (synthetic && std::ranges::any_of(synthetic->clients, names)) ||
         std::ranges::any_of(simulation.changes, submits);
}

std::vector<std::string> models_of(const Simulation& simulation) {
  workload::InternedNames models;
  const auto note = [&](const auto& named) {
    if (!named.model.empty()) models.position(named.model);
  };
  for (const auto& group : simulation.instances) {
    for (const std::string& model : group.models) models.position(model);
  }
  std::ranges::for_each(simulation.tenants, note);
  for (const Change& change : simulation.changes) std::ranges::for_each(change.submit, note);
  if (const auto* synthetic = std::get_if<workload::Synthetic>(&simulation.workload)) {
    std::ranges::for_each(synthetic->clients, note);
  }
  const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
  if (trace && trace->requests) {
    for (const std::string& model : trace->requests->models) models.position(model);
  }
  return models.names();
}

bool has_models(const Simulation& simulation) {
  const auto serves = [](const auto& group) { return !group.models.empty(); };
  return names_models(simulation) ||
         (!has_pools(simulation) && std::ranges::any_of(simulation.instances, serves));
}

bool reads_output_lengths(const Simulation& simulation) {
  return needs_of(simulation).output_lengths ||
         std::ranges::any_of(simulation.instances, [](const instance::InstanceGroup& group) {
           return signals::needs_of(group.scheduler).output_lengths;
         });
}

bool has_faults(const Simulation& simulation) {
  return simulation.may_fail || simulation.fleet.breakdowns ||
         std::ranges::any_of(simulation.changes, [](const Change& change) {
           return !std::ranges::all_of(change.faults, fleet::is_of_gateway);
         });
}

bool has_gateway_faults(const Simulation& simulation) {
  return std::ranges::any_of(simulation.changes, [](const Change& change) {
    return std::ranges::any_of(change.faults, fleet::is_of_gateway);
  });
}

bool has_migration(const Simulation& simulation) {
  return simulation.fleet.migration.is_on() && has_faults(simulation);
}

bool has_pools(const Simulation& simulation) {
  return std::ranges::any_of(simulation.instances, [](const instance::InstanceGroup& group) {
    return group.role != instance::Role::both;
  });
}

bool has_separate_pools(const Simulation& simulation) {
  return std::ranges::none_of(simulation.instances, [](const instance::InstanceGroup& group) {
    return group.role == instance::Role::both;
  });
}

std::vector<sim::InstanceId> instances_of(const Simulation& simulation, instance::Role role) {
  std::vector<sim::InstanceId> found;
  std::size_t next = 0;
  for (const instance::InstanceGroup& group : simulation.instances) {
    for (std::int64_t i = 0; i < group.count; ++i, ++next) {
      if (group.role == role || group.role == instance::Role::both) found.emplace_back(next);
    }
  }
  return found;
}

std::size_t num_instances(const Simulation& simulation) {
  std::size_t total = 0;
  for (const auto& group : simulation.instances) total += static_cast<std::size_t>(group.count);
  return total;
}

std::size_t num_engines(const Simulation& simulation) {
  std::size_t total = 0;
  for (const auto& group : simulation.instances) {
    total += static_cast<std::size_t>(group.count * group.data_parallel_size);
  }
  return total;
}

std::int64_t prefix_index_blocks(const Simulation& simulation) {
  const signals::PrefixIndexConfig& index = simulation.prefix_index;
  if (index.capacity_blocks) return *index.capacity_blocks;
  std::int64_t largest_tokens = 0;
  for (const auto& group : simulation.instances) {
    largest_tokens = std::max(largest_tokens, group.num_kv_blocks * group.block_size_tokens);
  }
  return std::max<std::int64_t>(largest_tokens / index.block_size_tokens, 1);
}

Context::Context(const Simulation& of, std::uint64_t with_seed,
                 std::shared_ptr<const workload::Requests> offered,
                 const std::function<bool()>& interrupted, bool is_observed,
                 std::span<const Version> later)
    : simulation(of),
      seed(with_seed),
      needs(needs_of(of, later)),
      follows_loads(depends_on_loads(of) ||
                    std::ranges::any_of(later, depends_on_loads, &Version::simulation)),
      may_change(is_observed || !later.empty()),
      learns_lengths(of.length_prediction.learns()),
      counts_tenants(is_observed || of.metrics.timeline_step_s.has_value()),
      record(
          make_record(of, with_seed,
                      offered ? std::move(offered) : offered_requests(of, with_seed, interrupted))),
      requests(record->requests),
      states(record->states),
      statistics(of, *record),
      events(num_engines(of)) {
  states.keeps_cached = is_observed && requests.shares_segments();
}

}  // namespace spillway::cluster
