#include "cluster/report.h"

#include <algorithm>
#include <memory>
#include <string>
#include <variant>

#include "cluster/gateway_health.h"
#include "cluster/migrations.h"
#include "cluster/pools.h"
#include "metrics/latencies.h"

namespace spillway::cluster {

using sim::InstanceId;
using sim::RequestId;
using sim::Time;

namespace {

bool uses_priority(const instance::InstanceGroup& group) {
  if (!std::holds_alternative<instance::StepLoop>(group.plant)) return false;
  return std::visit(
      [](const auto& config) {
        if constexpr (requires { config.priority; }) {
          return config.priority != instance::Priority::constant;
        }
        return false;
      },
      group.scheduler);
}

Time fleet_duration(const FinalState& end);

// The end of the run.
Time last_change(const FinalState& end) {
  return std::max(end.context.last_change, fleet_duration(end));
}

Time fleet_duration(const FinalState& end) {
  Time last{0};
  for (const auto& instance : end.fleet.instances()) {
    last = std::max(last, instance->counters().last_event);
  }
  return last;
}

metrics::Ledger balance(const FinalState& end) {
  metrics::FleetCounts fleet;
  for (std::size_t i = 0; i < end.fleet.instances().size(); ++i) {
    const auto& instance = end.fleet.instances()[i];
    instance->check_memory();
    const instance::Counters& c = instance->counters();
    const std::int64_t in_vain = end.fleet.in_vain(InstanceId{i}).requests;
    fleet.entered += c.entered;
    fleet.refused += c.refused;
    fleet.completed += c.completed - in_vain;
    const std::int64_t lost_in_vain = end.fleet.in_vain(InstanceId{i}).lost;
    fleet.cancelled += c.cancelled + in_vain + lost_in_vain;
    fleet.in_vain += in_vain;
    fleet.handed_over += c.handed_over;
    fleet.lost += c.lost - lost_in_vain;
  }
  if (end.pools) fleet.legs = end.pools->counts();
  if (end.migrations) fleet.migrations = end.migrations->counts();
  std::int64_t queued = 0;
  for (const auto& gateway : end.gateways.processes()) {
    for (std::size_t i = 0; i < end.context.record->requests.tenants.size(); ++i) {
      queued += gateway->pipeline().queued(sim::TenantId{i});
    }
  }
  return metrics::balance(end.context.statistics.outcomes(), end.gateways.counters(), queued,
                          fleet);
}

std::vector<InstanceReport> report_instances(const FinalState& end) {
  std::vector<InstanceReport> reports;
  reports.reserve(end.fleet.instances().size());
  const double duration_s = sim::to_seconds(fleet_duration(end));
  for (const auto& instance : end.fleet.instances()) {
    const instance::Counters& c = instance->counters();
    const auto steps = static_cast<double>(c.steps);
    const Fleet::InVain in_vain = end.fleet.in_vain(InstanceId{reports.size()});
    reports.push_back({c.completed - in_vain.requests, c.refused,
                       c.cancelled + in_vain.requests + in_vain.lost, c.preemptions,
                       c.tokens_recomputed, c.tokens_wasted + in_vain.tokens, c.steps,
                       duration_s > 0 ? c.waiting_time_s / duration_s : 0,
                       c.steps > 0 ? static_cast<double>(c.waiting_after_steps) / steps : 0,
                       c.kv_hits, c.kv_misses, c.kv_lookups, instance->stepping()});
  }
  return reports;
}

Activity activity(const FinalState& end) {
  Activity seen{.not_completed = end.context.statistics.outcomes().by_reason()};
  seen.limit_held.resize(end.context.simulation.gateway.limit.size());
  for (const auto& gateway : end.gateways.processes()) {
    const gateway::Pipeline& pipeline = gateway->pipeline();
    seen.peak_in_flight = std::max(seen.peak_in_flight, pipeline.peak_in_flight());
    const signals::PrefixIndex* index = gateway->local_state().prefix_index;
    if (index && index->has_forgotten()) seen.prefix_index_forgot = true;
    if (pipeline.has_stopped_others()) seen.tenant_limit_stopped_others = true;
    for (std::size_t i = 0; i < seen.limit_held.size(); ++i) {
      if (pipeline.limits().held()[i] != 0) seen.limit_held[i] = true;
    }
    const signals::BusyWorkers* known = end.load_events.known_to(gateway->index());
    if (known && known->has_exceeded()) seen.busy_threshold_exceeded = true;
  }
  for (const auto& instance : end.fleet.instances()) {
    seen.peak_kv_utilization =
        std::max(seen.peak_kv_utilization, instance->counters().peak_kv_utilization);
  }
  return seen;
}

std::vector<IngressReport> report_ingresses(const FinalState& end) {
  std::vector<IngressReport> reports;
  for (std::size_t i = 0; i < end.fleet.instances().size(); ++i) {
    const instance::IngressCounts* counts = end.fleet.instances()[i]->ingress();
    if (counts) reports.push_back({static_cast<std::int32_t>(i), *counts});
  }
  return reports;
}

// The loads as known to the first gateway.
std::vector<RankReport> report_ranks(const FinalState& end) {
  std::vector<RankReport> reports;
  const signals::BusyWorkers* known =
      end.load_events.known_to(end.gateways.replicas().front()->index());
  for (std::size_t i = 0; i < end.fleet.instances().size() && known; ++i) {
    std::int32_t rank = 0;
    for (const signals::RankLoad& load : known->ranks(InstanceId{i})) {
      reports.push_back(
          {static_cast<std::int32_t>(i), rank++, load.active_decode_blocks.value_or(0),
           load.active_prefill_tokens.value_or(0), known->is_busy(InstanceId{i}, end.context.now)});
    }
  }
  return reports;
}

// BLIS's count of inversions: only instances that order their queue by priority can have one.
std::int64_t count_late_finishers(const FinalState& end) {
  std::vector<bool> by_priority;
  for (const auto& group : end.context.simulation.instances) {
    by_priority.insert(by_priority.end(), static_cast<std::size_t>(group.count),
                       uses_priority(group));
  }
  const workload::RequestTable& requests = end.context.record->requests;
  const workload::RequestStates& states = end.context.record->states;
  const metrics::Latencies latencies(requests, states, end.context.simulation.metrics.accounting);
  std::vector<metrics::Served> served;
  for (std::size_t row = 0; row < end.context.record->offered; ++row) {
    const RequestId id{row};
    const std::int32_t instance = states.instance[row];
    if (states.outcome[row] != workload::Outcome::completed) continue;
    if (!by_priority[static_cast<std::size_t>(instance)]) continue;
    served.push_back(
        {instance, requests.slo_class(id), requests.arrival(id), latencies.e2e_ns(id)});
  }
  return metrics::count_priority_inversions(served);
}

metrics::RunFigures run_figures(const FinalState& end, std::span<const InstanceReport> instances) {
  const Simulation& simulation = end.context.simulation;
  metrics::RunFigures figures{
      .warm_up = sim::from_seconds(simulation.warm_up_s),
      .window_end = simulation.horizon_s ? end.horizon : end.clients.last_arrival(),
      .fleet_duration = fleet_duration(end)};
  figures.cost = end.fleet.cost(simulation.horizon_s ? end.horizon : last_change(end));
  std::vector<double> mean_waiting;
  mean_waiting.reserve(instances.size());
  for (const InstanceReport& instance : instances) {
    figures.preemptions += instance.preemptions;
    figures.recomputed_tokens += instance.tokens_recomputed;
    figures.wasted_tokens += instance.tokens_wasted;
    mean_waiting.push_back(simulation.metrics.uses_reported_latencies()
                               ? instance.mean_waiting_at_step
                               : instance.mean_waiting);
  }
  const auto& decisions = end.gateways.decisions().decisions();
  if (!decisions.empty()) {
    figures.mean_regret = 0;
    figures.max_regret = 0;
    for (const router::Decision& decision : decisions) {
      *figures.mean_regret += decision.regret / static_cast<double>(decisions.size());
      figures.max_regret = std::max(*figures.max_regret, decision.regret);
    }
  }
  figures.cache_hit_rate = cache_hit_rate(instances, simulation.metrics);
  figures.head_of_line_blocking = metrics::count_head_of_line_blocking(mean_waiting);
  if (!simulation.metrics.streaming) {
    metrics::QueueStays* stays = end.context.statistics.stays();
    figures.priority_inversions =
        stays ? stays->count_inversions(end.context.record->offered) : count_late_finishers(end);
  }
  return figures;
}

std::vector<gateway::ControlRecord> control_log(const FinalState& end) {
  std::vector<gateway::ControlRecord> all;
  for (const auto& gateway : end.gateways.processes()) {
    const auto log = gateway->pipeline().control_log();
    all.insert(all.end(), log.begin(), log.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  return all;
}

}  // namespace

Output report(const FinalState& end) {
  Output output;
  output.end_s = sim::to_seconds(last_change(end));
  output.tenants = tenant_names(end.context.record->requests);
  for (const auto& slo_class : end.context.record->requests.slo_classes) {
    output.slo_classes.push_back(slo_class.name);
  }
  output.ledger = balance(end);
  output.ledger.hedges = end.clients.hedge_counts();
  output.instances = report_instances(end);
  for (const InstanceReport& instance : output.instances) output.steps += instance.steps;
  output.ingresses = report_ingresses(end);
  output.ranks = report_ranks(end);
  if (const Health* health = end.fleet.health()) output.faults = health->reports();
  if (end.gateway_health) {
    const auto& of_gateways = end.gateway_health->reports();
    output.faults.insert(output.faults.end(), of_gateways.begin(), of_gateways.end());
    std::ranges::stable_sort(output.faults, {}, &FaultReport::began);
  }
  output.summary = std::make_shared<const metrics::Summary>(
      end.context.statistics.collector().summarize(run_figures(end, output.instances)));
  output.activity = activity(end);
  output.control = control_log(end);
  for (const auto& gateway : end.gateways.processes()) {
    const auto& details = gateway->pipeline().details();
    output.refusal_details.insert(details.begin(), details.end());
  }
  output.control_interval = end.context.simulation.gateway.sensor.interval();
  output.events = static_cast<std::int64_t>(end.context.events.popped());
  return output;
}

std::optional<double> cache_hit_rate(std::span<const InstanceReport> instances,
                                     const metrics::Metrics& config) {
  double hits = 0;
  double lookups = 0;
  double rates = 0;
  for (const InstanceReport& instance : instances) {
    hits += static_cast<double>(instance.kv_hits);
    lookups += static_cast<double>(instance.kv_lookups);
    const auto blocks = static_cast<double>(instance.kv_hits + instance.kv_misses);
    if (blocks > 0) rates += static_cast<double>(instance.kv_hits) / blocks;
  }
  if (config.uses_reported_latencies()) {
    return rates / static_cast<double>(instances.size());
  }
  if (lookups == 0) return std::nullopt;
  return hits / lookups;
}

}  // namespace spillway::cluster
