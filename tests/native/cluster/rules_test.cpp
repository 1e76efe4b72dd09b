// Every rule of a simulation, by name: a configuration that breaks it, and nothing else.
#include "cluster/rules.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check.h"
#include "workload/limits.h"

using namespace spillway;
using cluster::Rule;
using cluster::Simulation;

namespace {

struct Broken {
  std::string_view rule;
  std::string_view path;  // of the rule
  std::function<void(Simulation&)> change;
};

workload::Client& client_of(Simulation& simulation) {
  return std::get<workload::Synthetic>(simulation.workload).clients.front();
}

void estimate_exactly(Simulation& simulation) {
  simulation.gateway.admission = {
      gateway::PredictiveTtft{.estimator = gateway::TtftEstimator::exact}};
}

template <class Named>
std::vector<Named> too_many(std::vector<Named> names) {
  for (std::size_t i = 0; i < workload::kMaxNames; ++i) {
    names.emplace_back().name = std::to_string(i);
  }
  return names;
}

// Two groups of one instance, the first for prompts.
instance::InstanceGroup& with_pools(Simulation& simulation) {
  simulation.instances = {{.role = instance::Role::prefill}, {.role = instance::Role::decode}};
  return simulation.instances.front();
}

// The instance of a group crashes.
instance::InstanceGroup& with_crash(Simulation& simulation) {
  simulation.changes = {{.faults = {fleet::Crash{}}}};
  return simulation.instances.front();
}

// And its requests go on elsewhere.
instance::InstanceGroup& with_migration(Simulation& simulation) {
  simulation.fleet.migration.limit = 1;
  return with_crash(simulation);
}

Simulation& with_gateway_crash(Simulation& simulation) {
  simulation.changes = {{.faults = {fleet::GatewayCrash{}}}};
  return simulation;
}

// Clients hedge between two instances.
Simulation& with_hedges(Simulation& simulation) {
  simulation.reaction.hedge = workload::Hedge{};
  simulation.instances.front().count = 2;
  return simulation;
}

// Each breaks one rule at one of its paths.
std::vector<Broken> broken() {
  return {
      {"tenants_differ", "tenants[].name",
       [](Simulation& s) { s.tenants = {{.name = "default"}, {.name = "default"}}; }},
      {"slo_classes_differ", "slo_classes[].name",
       [](Simulation& s) { s.slo_classes.push_back(s.slo_classes.front()); }},
      {"fleet_has_instances", "instances", [](Simulation& s) { s.instances.clear(); }},
      {"sizes_are_possible", "fleet.initial_instances",
       [](Simulation& s) { s.fleet.initial_instances = 2; }},
      {"sizes_are_possible", "fleet.target_instances",
       [](Simulation& s) { s.fleet.target_instances = 2; }},
      {"sizes_are_possible", "fleet.autoscaler.max_instances",
       [](Simulation& s) { s.fleet.autoscaler = fleet::QueueScaler{.max_instances = 2}; }},
      {"sizes_are_possible", "fleet.autoscaler.min_instances",
       [](Simulation& s) {
         s.fleet.autoscaler = fleet::QueueScaler{.min_instances = 2, .max_instances = 1};
       }},
      {"sizes_are_possible", "fleet.autoscaler.metric",
       [](Simulation& s) {
         s.fleet.autoscaler =
             fleet::TargetScaler{.metric = fleet::ScalerMetric::sensor, .max_instances = 1};
       }},
      {"sizes_are_possible", "fleet.autoscaler.optimization_target",
       [](Simulation& s) {
         s.fleet.autoscaler = fleet::PlannerScaler{.optimization_target = fleet::PlannerTarget::sla,
                                                   .max_instances = 1};
         s.instances.front().plant = instance::ProcessorSharing{};
       }},
      {"exact_estimate_is_possible", "instances[].plant",
       [](Simulation& s) {
         estimate_exactly(s);
         s.instances.front().plant = instance::ProcessorSharing{};
       }},
      {"exact_estimate_is_possible", "instances[].front_end",
       [](Simulation& s) {
         estimate_exactly(s);
         s.instances.front().front_end.us_per_request = 1;
       }},
      {"exact_estimate_is_possible", "instances[].data_parallel_size",
       [](Simulation& s) {
         estimate_exactly(s);
         s.instances.front().data_parallel_size = 2;
       }},
      {"exact_estimate_is_possible", "instances[].ingress",
       [](Simulation& s) {
         estimate_exactly(s);
         s.instances.front().ingress = instance::EngineRequestLimit{};
       }},
      {"pools_are_whole", "instances",
       [](Simulation& s) { s.instances = {{.role = instance::Role::prefill}}; }},
      {"pools_are_alike", "instances[].block_size_tokens",
       [](Simulation& s) { with_pools(s).block_size_tokens = 32; }},
      {"pools_are_alike", "instances[].kv_bytes_per_token",
       [](Simulation& s) { with_pools(s).kv_bytes_per_token = 1; }},
      {"engines_can_serve_legs", "instances[].plant",
       [](Simulation& s) { with_pools(s).plant = instance::ProcessorSharing{}; }},
      {"engines_can_serve_legs", "instances[].lockstep_ranks",
       [](Simulation& s) {
         with_pools(s).data_parallel_size = 2;
         s.instances.front().lockstep_ranks = true;
       }},
      {"domains_are_stated", "instances[].transfer_domain",
       [](Simulation& s) {
         with_pools(s).transfer_domain = "rack 1";
         s.disaggregation.topology = router::Topology::require;
       }},
      {"pools_are_read_whole", "instances[].data_parallel_size",
       [](Simulation& s) {
         with_pools(s).data_parallel_size = 2;
         s.disaggregation.decider = router::Conditional{};
       }},
      {"engines_can_serve_legs", "instances[].front_end",
       [](Simulation& s) { with_pools(s).front_end.us_per_request = 1; }},
      {"engines_can_serve_legs", "instances[].ingress",
       [](Simulation& s) { with_pools(s).ingress = instance::EngineRequestLimit{}; }},
      {"engines_can_serve_legs", "instances[].scheduler",
       [](Simulation& s) { with_pools(s).scheduler = instance::LongestPrefix{}; }},
      {"engines_can_serve_legs", "instances[].completion",
       [](Simulation& s) { with_pools(s).completion = instance::Completion::step_start; }},
      {"engines_can_serve_legs", "instances[].preemption",
       [](Simulation& s) { with_pools(s).preemption = instance::Preemption::restart; }},
      {"engines_can_serve_legs", "instances[].kv_cache.allocation",
       [](Simulation& s) { with_pools(s).kv_cache.allocation = instance::Allocation::roll_back; }},
      {"engines_can_serve_legs", "instances[].chunked_prefill",
       [](Simulation& s) { with_pools(s).chunked_prefill = false; }},
      {"engines_can_serve_legs", "instances[].prefill_schedule_interval",
       [](Simulation& s) { with_pools(s).prefill_schedule_interval = 2; }},
      {"engines_can_serve_legs", "instances[].long_prefill_token_threshold_adaptive",
       [](Simulation& s) { with_pools(s).long_prefill_token_threshold_adaptive = true; }},
      {"engines_can_serve_legs", "instances[].speculative_decoding.num_drafts",
       [](Simulation& s) { with_pools(s).speculative_decoding.num_drafts = 1; }},
      {"engines_can_serve_legs", "instances[].engine_rules",
       [](Simulation& s) {
         with_pools(s).engine_rules.equal_blocks = instance::EqualBlocks::first;
       }},
      {"sizes_are_possible", "fleet.prefill",
       [](Simulation& s) { s.fleet.prefill.initial_instances = 1; }},
      {"sizes_are_possible", "fleet.decode",
       [](Simulation& s) { s.fleet.decode.target_instances = 1; }},
      {"sizes_are_possible", "fleet.max_pool_instances",
       [](Simulation& s) { s.fleet.max_pool_instances = 1; }},
      {"pools_are_served_plainly", "fleet.initial_instances",
       [](Simulation& s) {
         with_pools(s);
         s.fleet.initial_instances = 1;
       }},
      {"pools_are_served_plainly", "fleet.target_instances",
       [](Simulation& s) {
         with_pools(s);
         s.fleet.target_instances = 1;
       }},
      {"pools_are_served_plainly", "fleet.autoscaler",
       [](Simulation& s) {
         with_pools(s);
         s.fleet.autoscaler = fleet::QueueScaler{.max_instances = 1};
       }},
      {"pools_are_served_plainly", "gateway.decision_latency_s",
       [](Simulation& s) {
         with_pools(s);
         s.gateway.decision_latency_s = 1;
       }},
      {"pools_are_served_plainly", "gateway.admission",
       [](Simulation& s) {
         with_pools(s);
         estimate_exactly(s);
       }},
      {"pools_are_served_plainly", "router",
       [](Simulation& s) {
         with_pools(s);
         s.router = router::Weighted{.scorers = {router::PredictedLatency{}}};
       }},
      {"pools_are_served_plainly", "metrics.accounting",
       [](Simulation& s) {
         with_pools(s);
         s.metrics.accounting = metrics::Accounting::blis;
         for (auto& group : s.instances) group.async_scheduling = false;
       }},
      {"decider_suits_order", "disaggregation.decider",
       [](Simulation& s) { s.disaggregation.decider = router::UncachedTokens{}; }},
      {"horizon_is_after_warm_up", "warm_up_s",
       [](Simulation& s) { s.horizon_s = s.warm_up_s = 1; }},
      {"reported_latencies_are_synchronous", "instances[].async_scheduling",
       [](Simulation& s) {
         s.metrics.accounting = metrics::Accounting::blis;
         s.instances.front().async_scheduling = true;
       }},
      {"tracked_output_is_kept", "instances[].preemption",
       [](Simulation& s) {
         s.busy_monitor.track_output_blocks = true;
         s.instances.front().preemption = instance::Preemption::restart;
       }},
      {"instances_can_fail", "changes[].faults[].instance",
       [](Simulation& s) { s.changes = {{.faults = {fleet::Crash{.instance = 1}}}}; }},
      {"instances_can_fail", "instances[].plant",
       [](Simulation& s) {
         with_crash(s).plant =
             instance::ProcessorSharing{.concurrency = {1}, .e2e_s = {1}, .ttft_s = {1}};
       }},
      {"instances_can_fail", "instances[].lockstep_ranks",
       [](Simulation& s) {
         with_crash(s).lockstep_ranks = true;
         s.instances.front().data_parallel_size = 2;
       }},
      {"instances_can_fail", "instances[].front_end",
       [](Simulation& s) { with_crash(s).front_end.us_per_request = 1; }},
      {"instances_can_fail", "instances[].completion",
       [](Simulation& s) {
         with_crash(s).completion = instance::Completion::step_start;
         s.instances.front().async_scheduling = false;
       }},
      {"instances_can_fail", "instances[].preemption",
       [](Simulation& s) { with_migration(s).preemption = instance::Preemption::restart; }},
      {"instances_can_fail", "instances[].speculative_decoding.num_drafts",
       [](Simulation& s) { with_migration(s).speculative_decoding.num_drafts = 2; }},
      {"instances_can_fail", "fleet.migration.limit",
       [](Simulation& s) {
         with_migration(s);
         s.disaggregation.order = router::LegOrder::decode_first;
         s.disaggregation.prefill_max_retries = 1;
       }},
      {"instances_can_fail", "changes[].faults[]",
       [](Simulation& s) {
         with_pools(s);
         s.changes = {{.faults = {fleet::KvLoss{}}}};
       }},
      {"instances_can_fail", "gateway.admission",
       [](Simulation& s) {
         with_crash(s);
         estimate_exactly(s);
       }},
      {"instances_can_fail", "metrics.accounting",
       [](Simulation& s) {
         with_crash(s).async_scheduling = false;
         s.metrics.accounting = metrics::Accounting::blis;
       }},
      {"gateways_can_fail", "changes[].faults[].gateway",
       [](Simulation& s) { s.changes = {{.faults = {fleet::GatewayCrash{.gateway = 1}}}}; }},
      {"gateways_can_fail", "fleet.migration.limit",
       [](Simulation& s) { with_gateway_crash(s).fleet.migration.limit = 1; }},
      {"gateways_can_fail", "gateway.admission",
       [](Simulation& s) { estimate_exactly(with_gateway_crash(s)); }},
      {"gateways_can_fail", "instances[].role",
       [](Simulation& s) {
         with_gateway_crash(s).instances.resize(2);
         s.instances.front().role = instance::Role::prefill;
         s.instances.back().role = instance::Role::decode;
       }},
      {"gateways_can_fail", "instances[].notices_departure_after_s",
       [](Simulation& s) {
         with_gateway_crash(s).instances.front().notices_departure_after_s = 1;
       }},
      {"hedges_are_possible", "instances",
       [](Simulation& s) { with_hedges(s).instances.front().count = 1; }},
      {"hedges_are_possible", "tenants",
       [](Simulation& s) { with_hedges(s).tenants = {{.name = "default", .model = "large"}}; }},
      {"hedges_are_possible", "changes", [](Simulation& s) { with_crash(with_hedges(s)); }},
      {"hedges_are_possible", "fleet",
       [](Simulation& s) { with_hedges(s).fleet.initial_instances = 1; }},
      {"hedges_are_possible", "gateway.decision_latency_s",
       [](Simulation& s) { with_hedges(s).gateway.decision_latency_s = 1; }},
      {"hedges_are_possible", "metrics.accounting",
       [](Simulation& s) {
         with_hedges(s).instances.front().async_scheduling = false;
         s.metrics.accounting = metrics::Accounting::blis;
       }},
      {"hedges_are_possible", "instances[].completion",
       [](Simulation& s) {
         with_hedges(s).instances.front().async_scheduling = false;
         s.instances.front().completion = instance::Completion::step_start;
       }},
      {"hedges_are_possible", "changes[].submit",
       [](Simulation& s) {
         with_hedges(s).metrics.streaming = true;
         s.changes = {{.submit = {workload::Submission{}}}};
       }},
      {"streaming_traces_no_candidates", "metrics.traced_candidates",
       [](Simulation& s) {
         s.metrics.streaming = true;
         s.metrics.traced_candidates = 1;
       }},
      {"late_notices_suit_retries", "metrics.streaming",
       [](Simulation& s) {
         s.workload = workload::Synthetic{.num_requests = 0};
         s.instances.front().notices_departure_after_s.reset();
         s.reaction.retries = {{.on = {}}};
       }},
      {"pools_notice_departures", "instances[].notices_departure_after_s",
       [](Simulation& s) { with_pools(s).notices_departure_after_s = 1; }},
      {"models_are_served", "tenants[].model",
       [](Simulation& s) {
         s.instances.front().models = {"small"};
         s.tenants = {{.name = "default", .model = "large"}};
       }},
      {"models_are_served", "workload.clients[].model",
       [](Simulation& s) {
         s.instances.front().models = {"small"};
         s.workload = workload::Synthetic{.clients = {{.model = "large"}}};
       }},
      {"models_are_served", "changes[].submit[].model",
       [](Simulation& s) {
         s.instances.front().models = {"small"};
         s.changes = {{.at_s = 1, .submit = {{.model = "large"}}}};
       }},
      {"models_are_served", "instances",
       [](Simulation& s) {
         with_pools(s);
         s.tenants = {{.name = "default", .model = "large"}};
       }},
      {"names_can_be_counted", "tenants",
       [](Simulation& s) { s.tenants = too_many<workload::Tenant>({{.name = "default"}}); }},
      {"names_can_be_counted", "slo_classes",
       [](Simulation& s) { s.slo_classes = too_many(s.slo_classes); }},
      {"names_can_be_counted", "instances",
       [](Simulation& s) {
         for (std::size_t i = 0; i <= workload::kMaxNames; ++i) {
           s.instances.front().models.push_back("model " + std::to_string(i));
         }
       }},
      {"sensed_tenant_is_known", "gateway.sensor.tenant",
       [](Simulation& s) {
         s.gateway.limit = {gateway::FixedLimit{}};
         s.gateway.controller = gateway::Aimd{};
         s.gateway.sensor.scope = signals::SensorScope::tenant;
         s.gateway.sensor.tenant = "gold";
       }},
      {"sensed_class_is_known", "gateway.sensor.slo_class",
       [](Simulation& s) {
         s.gateway.limit = {gateway::FixedLimit{}};
         s.gateway.controller = gateway::Aimd{};
         s.gateway.sensor.scope = signals::SensorScope::slo_class;
         s.gateway.sensor.slo_class = "gold";
       }},
      {"names_in_limits_are_known", "gateway.limit[].tenants",
       [](Simulation& s) { s.gateway.limit = {gateway::GroupLimit{.tenants = {"gold"}}}; }},
      {"names_in_limits_are_known", "gateway.limit[].slo_classes",
       [](Simulation& s) { s.gateway.limit = {gateway::GroupLimit{.slo_classes = {"gold"}}}; }},
      {"names_in_limits_are_known", "gateway.limit[].models",
       [](Simulation& s) { s.gateway.limit = {gateway::GroupLimit{.models = {"large"}}}; }},
      {"names_in_admission_are_known", "gateway.admission[]",
       [](Simulation& s) {
         s.gateway.admission = {gateway::TenantBudget{.budgets = {{.tenant = "gold"}}}};
       }},
      {"slo_classes_in_bands_are_known", "gateway.bands[]",
       [](Simulation& s) {
         gateway::PolicyClasses policy;
         policy.requests.emplace_back().slo_class = "gold";
         s.gateway.bands.front().fairness = policy;
       }},
      {"clients_can_send", "workload.clients[].slo_class",
       [](Simulation& s) { client_of(s).slo_class = "gold"; }},
      {"clients_can_send", "workload.clients[].tenant",
       [](Simulation& s) { s.tenants = {{.name = "gold"}}; }},
      {"clients_can_send", "workload.clients[].arrivals",
       [](Simulation& s) { client_of(s).arrivals = workload::ClosedLoop{}; }},
      {"submissions_are_known", "changes[].submit[].tenant",
       [](Simulation& s) { s.changes = {{.submit = {{.tenant = "gold"}}}}; }},
      {"submissions_are_known", "changes[].submit[].slo_class",
       [](Simulation& s) { s.changes = {{.submit = {{.slo_class = "gold"}}}}; }},
      {"submissions_have_instances", "changes[].submit[].instance",
       [](Simulation& s) { s.changes = {{.submit = {{.instance = 1}}}}; }},
      {"prompts_can_be_handed_off", "changes[].submit[].prefill_only",
       [](Simulation& s) { s.changes = {{.submit = {{.prefill_only = true}}}}; }},
      {"prompts_can_be_handed_off", "changes[].hand_off[].request",
       [](Simulation& s) { s.changes = {{.submit = {{}}}, {.at_s = 1, .hand_off = {{}}}}; }},
      {"prompts_can_be_handed_off", "changes[].hand_off[].instance",
       [](Simulation& s) {
         with_pools(s);
         s.changes = {{.submit = {{.instance = 0, .prefill_only = true}}},
                      {.at_s = 1, .hand_off = {{.instance = 2}}}};
       }},
      {"cancellations_follow_arrivals", "changes[].cancel[]",
       [](Simulation& s) { s.changes = {{.submit = {{}}, .cancel = {0}}}; }},
      {"changes_are_possible", "changes[].set",
       [](Simulation& s) {
         s.changes = {{.at_s = 1, .set = sim::Value::Map{{"quantum_ns", sim::Value(2.0)}}}};
       }},
  };
}

// The path of a setting without the positions in lists.
std::string without_positions(std::string path) {
  for (std::size_t begin = path.find('['); begin != path.npos; begin = path.find('[', begin + 2)) {
    const std::size_t end = path.find_first_not_of("0123456789", begin + 1);
    if (end != path.npos && path[end] == ']') path.erase(begin + 1, end - begin - 1);
  }
  return path;
}

bool is_at(const std::string& path, std::string_view expected) {
  const std::string place = without_positions(path);
  return place.starts_with(expected) &&
         (place.size() == expected.size() || place[expected.size()] == '.' ||
          place[expected.size()] == '[');
}

std::string list_of(const std::vector<sim::Violation>& violations) {
  std::string text;
  for (const sim::Violation& violation : violations) {
    text += violation.path + " = " + violation.value + ": " + violation.allowed + "\n";
  }
  return text;
}

std::vector<sim::Violation> violations_of(std::span<const Rule> rules, const Simulation& of) {
  std::vector<sim::Violation> found;
  cluster::check_rules(rules, of, "", found);
  return found;
}

void each_is_broken_alone_and_where_it_says() {
  check(violations_of(cluster::rules(), {}).empty(), "the defaults break none");
  for (const Broken& example : broken()) {
    Simulation simulation;
    example.change(simulation);
    for (const Rule& rule : cluster::rules()) {
      const std::vector<sim::Violation> found = violations_of({&rule, 1}, simulation);
      const std::string what = std::string(example.rule) + " is broken; " + std::string(rule.name) +
                               ": " + list_of(found);
      check(found.empty() == (rule.name != example.rule), what);
      check(std::ranges::all_of(found, [&](const auto& v) { return is_at(v.path, example.path); }),
            what);
    }
  }
}

void every_path_of_every_rule_has_a_case() {
  std::set<std::pair<std::string_view, std::string_view>> listed;
  std::set<std::pair<std::string_view, std::string_view>> tried;
  for (const Rule& rule : cluster::rules()) {
    for (const std::string_view path : rule.paths) {
      if (path.empty()) continue;
      check(listed.emplace(rule.name, path).second, std::string(rule.name) + " is unique");
    }
  }
  for (const Broken& example : broken()) tried.emplace(example.rule, example.path);
  for (const auto& [rule, path] : listed) {
    check(tried.contains({rule, path}),
          "a case breaks " + std::string(rule) + " at " + std::string(path));
  }
  check(tried == listed, "every case names a rule and one of its paths");
}

}  // namespace

CASES(each_is_broken_alone_and_where_it_says, every_path_of_every_rule_has_a_case);
