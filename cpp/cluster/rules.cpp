#include "cluster/rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "cluster/changes.h"
#include "cluster/context.h"
#include "cluster/fault_rules.h"
#include "cluster/hedge_rules.h"
#include "cluster/scaling_rules.h"
#include "cluster/submission_rules.h"
#include "sim/names.h"
#include "sim/schema/codec.h"
#include "workload/limits.h"
#include "workload/synthetic.h"
#include "workload/trace.h"
#include "workload/users.h"

namespace spillway::cluster {

namespace {

std::string quoted(std::string_view name) { return std::string("'").append(name).append("'"); }

}  // namespace

/// The names of the tenants or classes: those that the configuration states, then those that occur
/// elsewhere.
class KnownNames {
 public:
  template <class Named>
  KnownNames(const std::vector<Named>& configured, const char* what)
      : num_configured_(configured.size()), what_(what) {
    for (const Named& named : configured) add(named.name);
  }
  void add(std::string_view name) {
    index_.add(name);
    names_.push_back(name);
  }

  const char* what() const { return what_; }
  std::size_t num_names() const { return index_.num_names(); }
  std::span<const std::string_view> configured() const {
    return std::span(names_).first(num_configured_);
  }
  std::span<const std::string_view> all() const { return names_; }
  bool has(std::string_view name) const { return index_.has(name); }
  bool is_configured(std::string_view name) const { return position(name) < num_configured_; }
  std::size_t position(std::string_view name) const { return index_.of(name); }

 private:
  sim::NameIndex index_;
  std::vector<std::string_view> names_;
  std::size_t num_configured_;
  const char* what_;
};

/// A simulation whose rules are checked, and what has been reported.
class Inspection {
 public:
  Inspection(const Simulation& of, const std::string& path, std::vector<sim::Violation>& out)
      : simulation(of),
        synthetic(std::get_if<workload::Synthetic>(&of.workload)),
        tenants(of.tenants, "tenants"),
        slo_classes(of.slo_classes, "slo_classes"),
        path_(path),
        out_(out) {
    const auto* trace = std::get_if<workload::Trace>(&of.workload);
    lacks_requests = trace && !trace->requests;
    if (synthetic) {
      for (const workload::Client& client : synthetic->clients) tenants.add(client.tenant);
    } else if (!lacks_requests) {
      tenants_of_trace_ = workload::possible_tenants(*trace);
      classes_of_trace_ = workload::possible_slo_classes(*trace);
    }
    for (const std::string& name : tenants_of_trace_) tenants.add(name);
    for (const std::string& name : classes_of_trace_) slo_classes.add(name);
  }
  Inspection(const Inspection&) = delete;
  Inspection& operator=(const Inspection&) = delete;

  const Simulation& simulation;
  const workload::Synthetic* synthetic;  ///< null: the workload is a trace
  bool lacks_requests;                   ///< a trace that may have any tenants and classes
  KnownNames tenants;
  KnownNames slo_classes;

  void report(std::string_view at, std::string value, std::string allowed) {
    out_.push_back({sim::join_path(path_, at), std::move(value), std::move(allowed)});
  }
  /// Reports a name that is none of `allowed`, which are some of `names`.
  void report_unknown(std::string_view name, std::string_view at, const KnownNames& names,
                      std::span<const std::string_view> allowed) {
    std::string hint;
    if (out_.size() < sim::kShownViolations) {
      hint = sim::did_you_mean(name, {allowed.begin(), allowed.end()});
    }
    report(at, quoted(name), std::string("must be one of the ") + names.what() + hint);
  }
  void must_be_known(std::string_view name, std::string_view at, const KnownNames& names) {
    if (!names.has(name)) report_unknown(name, at, names, names.all());
  }
  void must_be_configured(std::string_view name, std::string_view at, const KnownNames& names) {
    if (!names.is_configured(name)) report_unknown(name, at, names, names.configured());
  }

  /// Reports a model that no group states, and neither a tenant nor a request names.
  void must_be_a_model(const std::string& name, const std::string& at) {
    if (lacks_requests) return;
    const std::vector<std::string> known = models_of(simulation);
    if (std::ranges::find(known, name) != known.end()) return;
    report(at, quoted(name),
           "must be a model of instances[].models, or one that a tenant or a request names" +
               sim::did_you_mean(name, {known.begin(), known.end()}));
  }

  std::vector<sim::Violation>& reported() { return out_; }

 private:
  const std::string& path_;
  std::vector<sim::Violation>& out_;
  std::vector<std::string> tenants_of_trace_;
  std::vector<std::string> classes_of_trace_;
};

namespace {

std::string entry(std::string_view list, std::size_t index, std::string_view field = "") {
  const std::string path = sim::index_path(std::string(list), index);
  return field.empty() ? path : sim::join_path(path, field);
}

// ---- names ---------------------------------------------------------------------------------

void must_differ(Inspection& seen, const KnownNames& names) {
  const std::span<const std::string_view> configured = names.configured();
  for (std::size_t i = 0; i < configured.size(); ++i) {
    if (names.position(configured[i]) == i) continue;
    seen.report(entry(names.what(), i, "name"), quoted(configured[i]), "must be unique");
  }
}
void tenants_differ(Inspection& seen) { must_differ(seen, seen.tenants); }
void slo_classes_differ(Inspection& seen) { must_differ(seen, seen.slo_classes); }

void names_can_be_counted(Inspection& seen) {
  for (const KnownNames* names : {&seen.tenants, &seen.slo_classes}) {
    if (names->num_names() <= workload::kMaxNames) continue;
    seen.report(names->what(), std::to_string(names->num_names()) + " names",
                "must be <= " + std::to_string(workload::kMaxNames));
  }
  const std::size_t models = models_of(seen.simulation).size();
  if (models <= workload::kMaxNames) return;
  seen.report("instances", std::to_string(models) + " models of groups, tenants and requests",
              "must be <= " + std::to_string(workload::kMaxNames));
}

void sensed_tenant_is_known(Inspection& seen) {
  const gateway::Gateway& gateway = seen.simulation.gateway;
  if (!gateway::is_controlled(gateway)) return;
  if (gateway.sensor.scope != signals::SensorScope::tenant) return;
  seen.must_be_known(gateway.sensor.tenant, "gateway.sensor.tenant", seen.tenants);
}

void sensed_class_is_known(Inspection& seen) {
  const gateway::Gateway& gateway = seen.simulation.gateway;
  if (!gateway::is_controlled(gateway)) return;
  if (gateway.sensor.scope != signals::SensorScope::slo_class) return;
  seen.must_be_known(gateway.sensor.slo_class, "gateway.sensor.slo_class", seen.slo_classes);
}

void names_in_limits_are_known(Inspection& seen) {
  if (seen.lacks_requests) return;
  const std::vector<gateway::Limit>& limits = seen.simulation.gateway.limit;
  for (std::size_t i = 0; i < limits.size(); ++i) {
    const auto* group = std::get_if<gateway::GroupLimit>(&limits[i]);
    if (!group) continue;
    const auto check = [&](const std::vector<std::string>& list, const char* field,
                           const KnownNames& names) {
      for (std::size_t j = 0; j < list.size(); ++j) {
        seen.must_be_known(list[j], entry(entry("gateway.limit", i, field), j), names);
      }
    };
    check(group->tenants, "tenants", seen.tenants);
    check(group->slo_classes, "slo_classes", seen.slo_classes);
    for (std::size_t j = 0; j < group->models.size(); ++j) {
      seen.must_be_a_model(group->models[j], entry(entry("gateway.limit", i, "models"), j));
    }
  }
}

// The tenants and classes in the lists of a policy.
void names_in_admission_are_known(Inspection& seen) {
  if (seen.lacks_requests) return;
  const std::vector<gateway::Admission>& policies = seen.simulation.gateway.admission;
  const auto check = [&](const sim::Value& listed, const std::string& at, const char* field,
                         const KnownNames& names) {
    const sim::Value* name = listed.find(field);
    const auto* text = name ? name->get_if<std::string>() : nullptr;
    if (!text) return;
    seen.must_be_known(*text, sim::join_path(at, field), names);
  };
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const sim::Value policy = sim::encode(policies[i]);
    for (const auto& [field, value] : *policy.get_if<sim::Value::Map>()) {
      const auto* list = value.get_if<sim::Value::List>();
      for (std::size_t j = 0; list && j < list->size(); ++j) {
        const std::string at = entry(entry("gateway.admission", i, field), j);
        check((*list)[j], at, "tenant", seen.tenants);
        check((*list)[j], at, "slo_class", seen.slo_classes);
        const sim::Value* model = (*list)[j].find("model");
        const auto* text = model ? model->get_if<std::string>() : nullptr;
        if (text && !text->empty()) seen.must_be_a_model(*text, sim::join_path(at, "model"));
      }
    }
  }
}

void slo_classes_in_bands_are_known(Inspection& seen) {
  if (seen.lacks_requests) return;
  const std::vector<gateway::Band>& bands = seen.simulation.gateway.bands;
  for (std::size_t i = 0; i < bands.size(); ++i) {
    const auto* policy = std::get_if<gateway::PolicyClasses>(&bands[i].fairness);
    for (std::size_t j = 0; policy && j < policy->requests.size(); ++j) {
      const std::string at = entry(entry("gateway.bands", i, "fairness.requests"), j);
      seen.must_be_known(policy->requests[j].slo_class, sim::join_path(at, "slo_class"),
                         seen.slo_classes);
    }
  }
}

void clients_can_send(Inspection& seen) {
  const workload::Synthetic* synthetic = seen.synthetic;
  for (std::size_t i = 0; synthetic && i < synthetic->clients.size(); ++i) {
    const workload::Client& client = synthetic->clients[i];
    const auto at = [&](const char* field) { return entry("workload.clients", i, field); };
    seen.must_be_configured(client.slo_class, at("slo_class"), seen.slo_classes);
    if (!seen.simulation.tenants.empty()) {
      seen.must_be_configured(client.tenant, at("tenant"), seen.tenants);
    }
    const bool has_end =
        client.is_finite() || synthetic->duration_s || seen.simulation.horizon_s.has_value();
    if (client.closed_loop() && !has_end) {
      seen.report(at("arrivals"), "'closed_loop'",
                  "must have an end: set the client's duration_s or num_requests, or the "
                  "workload's duration_s");
    }
  }
}

void submissions_are_known(Inspection& seen) {
  if (seen.lacks_requests) return;
  const std::vector<Change>& changes = seen.simulation.changes;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    for (std::size_t j = 0; j < changes[i].submit.size(); ++j) {
      const workload::Submission& submission = changes[i].submit[j];
      const std::string at = entry(entry("changes", i, "submit"), j);
      seen.must_be_known(submission.tenant, at + ".tenant", seen.tenants);
      seen.must_be_known(submission.slo_class, at + ".slo_class", seen.slo_classes);
    }
  }
}

void cancellations_follow_arrivals(Inspection& seen) {
  const std::vector<Change>& changes = seen.simulation.changes;
  std::vector<double> arrival_s;
  for (const Change& change : changes) {
    arrival_s.resize(arrival_s.size() + change.submit.size(), change.at_s);
  }
  for (std::size_t i = 0; i < changes.size(); ++i) {
    for (std::size_t j = 0; j < changes[i].cancel.size(); ++j) {
      const std::int64_t number = changes[i].cancel[j];
      const std::string at = entry(entry("changes", i, "cancel"), j);
      if (number >= std::ssize(arrival_s)) {
        seen.report(at, std::to_string(number),
                    "must be one of the " + std::to_string(arrival_s.size()) +
                        " submitted requests, from 0");
      } else if (arrival_s[static_cast<std::size_t>(number)] >= changes[i].at_s) {
        seen.report(at, std::to_string(number),
                    "arrives at " + sim::to_text(arrival_s[static_cast<std::size_t>(number)]) +
                        " s: it must have arrived before at_s");
      }
    }
  }
}

// ---- the fleet -----------------------------------------------------------------------------

void fleet_has_instances(Inspection& seen) {
  if (!seen.simulation.instances.empty()) return;
  seen.report("instances", "[]", "must hold at least one group");
}

// ---- what parts require of each other ------------------------------------------------------

void exact_estimate_is_possible(Inspection& seen) {
  if (!gateway::needs_of(seen.simulation.gateway).exact_estimate) return;
  const std::vector<instance::InstanceGroup>& groups = seen.simulation.instances;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const instance::InstanceGroup& group = groups[i];
    const auto report = [&](const char* field, std::string value) {
      seen.report(entry("instances", i, field), std::move(value),
                  "not supported with estimator: exact in gateway.admission, which can only "
                  "predict a step_loop without ranks and front end behind an open ingress");
    };
    if (!std::holds_alternative<instance::StepLoop>(group.plant)) {
      report("plant", sim::to_text(sim::encode(group.plant)));
    }
    if (group.data_parallel_size > 1) {
      report("data_parallel_size", std::to_string(group.data_parallel_size));
    }
    if (!std::holds_alternative<instance::Open>(group.ingress)) {
      report("ingress", sim::to_text(sim::encode(group.ingress)));
    }
    if (group.front_end.is_on()) {
      report("front_end", sim::to_text(sim::encode(group.front_end)));
    }
  }
}

void horizon_is_after_warm_up(Inspection& seen) {
  const std::optional<double> horizon_s = seen.simulation.horizon_s;
  const double warm_up_s = seen.simulation.warm_up_s;
  if (!horizon_s || *horizon_s > warm_up_s) return;
  seen.report("warm_up_s", sim::to_text(warm_up_s),
              "must be < horizon_s (" + sim::to_text(*horizon_s) + ")");
}

void reported_latencies_are_synchronous(Inspection& seen) {
  if (!seen.simulation.metrics.uses_reported_latencies()) return;
  const std::vector<instance::InstanceGroup>& groups = seen.simulation.instances;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const bool has_steps = std::holds_alternative<instance::StepLoop>(groups[i].plant);
    if (!has_steps || !groups[i].async_scheduling) continue;
    seen.report(entry("instances", i, "async_scheduling"), "true",
                "must be false with a metrics.accounting that is not clock");
  }
}

void tracked_output_is_kept(Inspection& seen) {
  if (!seen.simulation.busy_monitor.track_output_blocks) return;
  const std::vector<instance::InstanceGroup>& groups = seen.simulation.instances;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].preemption == instance::Preemption::keep_emitted) continue;
    seen.report(entry("instances", i, "preemption"), "restart",
                "must be keep_emitted with busy_monitor.track_output_blocks, which counts tokens");
  }
}

// ---- prefill and decode pools --------------------------------------------------------------

// Calls `check` with each group and its path if groups have roles.
void with_pools(Inspection& seen, const auto& check) {
  if (!has_pools(seen.simulation)) return;
  const std::vector<instance::InstanceGroup>& groups = seen.simulation.instances;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    check(groups[i], [&seen, i](std::string_view field, std::string value, std::string allowed) {
      seen.report(entry("instances", i, field), std::move(value), std::move(allowed));
    });
  }
}

void pools_are_whole(Inspection& seen) {
  bool has_decode = false;
  with_pools(seen, [&](const instance::InstanceGroup& group, const auto&) {
    has_decode = has_decode || group.role != instance::Role::prefill;
  });
  if (has_decode || !has_pools(seen.simulation)) return;
  seen.report(
      "instances", "prefill alone",
      "must hold a group with role: decode or both, which continues what a prefill pool begins");
}

void pools_are_alike(Inspection& seen) {
  const auto& groups = seen.simulation.instances;
  with_pools(seen, [&](const instance::InstanceGroup& group, const auto& report) {
    const auto check = [&](const char* field, std::int64_t own, std::int64_t first) {
      if (own == first) return;
      report(field, std::to_string(own),
             "must equal that of instances[0] (" + std::to_string(first) +
                 "): blocks are moved between the pools as they are");
    };
    check("block_size_tokens", group.block_size_tokens, groups.front().block_size_tokens);
    check("kv_bytes_per_token", group.kv_bytes_per_token, groups.front().kv_bytes_per_token);
  });
}

void domains_are_stated(Inspection& seen) {
  if (seen.simulation.disaggregation.topology != router::Topology::require) return;
  with_pools(seen, [&](const instance::InstanceGroup& group, const auto& report) {
    if (!group.transfer_domain.empty()) return;
    report("transfer_domain", "\"\"", "must be stated with disaggregation.topology: require");
  });
}

// A decider reads the load of an instance, which is that of one rank in Dynamo.
void pools_are_read_whole(Inspection& seen) {
  const router::AnyDecider& decider = seen.simulation.disaggregation.decider;
  if (!router::reads_loads(decider)) return;
  const std::string kind =
      std::visit([](const auto& config) { return std::string(config.kind); }, decider);
  with_pools(seen, [&](const instance::InstanceGroup& group, const auto& report) {
    if (group.data_parallel_size == 1) return;
    report("data_parallel_size", std::to_string(group.data_parallel_size),
           "must be 1 with the decider " + kind + ", which reads the load of whole instances");
  });
}

// What an engine that serves legs has been shown to do.
void engines_can_serve_legs(Inspection& seen) {
  with_pools(seen, [](const instance::InstanceGroup& group, const auto& report) {
    const auto require = [&](const char* field, bool holds, std::string value,
                             const std::string& needed) {
      if (holds) return;
      report(field, std::move(value), "must be " + needed + " with prefill and decode pools");
    };
    const auto text = [](const auto& setting) { return sim::to_text(sim::encode(setting)); };
    const instance::InstanceGroup plain;
    require("plant", std::holds_alternative<instance::StepLoop>(group.plant), text(group.plant),
            "step_loop");
    require("lockstep_ranks", !group.lockstep_ranks, "true", "false");
    require("front_end", !group.front_end.is_on(), text(group.front_end), "off");
    require("ingress", std::holds_alternative<instance::Open>(group.ingress), text(group.ingress),
            "open");
    const auto* by_class = std::get_if<instance::PriorityFcfs>(&group.scheduler);
    const bool is_special = std::holds_alternative<instance::LongestPrefix>(group.scheduler) ||
                            (by_class && by_class->preemption_margin);
    require("scheduler", !is_special, text(group.scheduler),
            "another than longest_prefix, and without a preemption_margin,");
    require("completion", group.completion == instance::Completion::step_end, "step_start",
            "step_end");
    require("preemption", group.preemption == instance::Preemption::keep_emitted, "restart",
            "keep_emitted");
    require("kv_cache.allocation",
            group.kv_cache.allocation == instance::Allocation::check_then_act, "roll_back",
            "check_then_act");
    require("chunked_prefill", group.chunked_prefill, "false", "true");
    require("prefill_schedule_interval", group.prefill_schedule_interval == 1,
            std::to_string(group.prefill_schedule_interval), "1");
    require("long_prefill_token_threshold_adaptive", !group.long_prefill_token_threshold_adaptive,
            "true", "false");
    require("speculative_decoding.num_drafts", group.speculative_decoding.num_drafts == 0,
            std::to_string(group.speculative_decoding.num_drafts), "0");
    require("engine_rules", group.engine_rules == plain.engine_rules, text(group.engine_rules),
            "those of the default server");
  });
}

// What would see one fleet where there are two pools.
void pools_are_served_plainly(Inspection& seen) {
  const Simulation& simulation = seen.simulation;
  if (!has_pools(simulation)) return;
  const signals::Needs of_gateway = gateway::needs_of(simulation.gateway);
  const signals::Needs of_router = signals::needs_of(simulation.router);
  const auto require = [&](const char* at, bool holds, std::string value,
                           const std::string& needed) {
    if (holds) return;
    seen.report(at, std::move(value), needed + " with prefill and decode pools");
  };
  const fleet::Fleet& fleet = simulation.fleet;
  require("fleet.initial_instances", !fleet.initial_instances,
          std::to_string(fleet.initial_instances.value_or(0)),
          "must be that of fleet.prefill or fleet.decode");
  require("fleet.target_instances", !fleet.target_instances,
          std::to_string(fleet.target_instances.value_or(0)),
          "must be that of fleet.prefill or fleet.decode");
  require("fleet.autoscaler", std::holds_alternative<fleet::NoAutoscaler>(fleet.autoscaler),
          sim::to_text(sim::encode(fleet.autoscaler)),
          "must be that of fleet.prefill or fleet.decode");
  require("gateway.decision_latency_s", simulation.gateway.decision_latency_s == 0,
          sim::to_text(simulation.gateway.decision_latency_s), "must be 0");
  require("gateway.admission",
          !(of_gateway.exact_estimate || of_gateway.outstanding || of_gateway.next_choice ||
            of_gateway.predictions),
          sim::to_text(sim::encode(simulation.gateway.admission)), "cannot predict first tokens");
  require("router", !(of_router.predictions || of_router.outstanding),
          sim::to_text(sim::encode(simulation.router)), "cannot predict latencies");
  require("metrics.accounting", !simulation.metrics.uses_reported_latencies(),
          std::string(sim::name_of(simulation.metrics.accounting)), "must be clock");
}

void decider_suits_order(Inspection& seen) {
  const router::Disaggregation& pools = seen.simulation.disaggregation;
  if (pools.order == router::LegOrder::decode_first) return;
  if (!std::holds_alternative<router::UncachedTokens>(pools.decider)) return;
  seen.report("disaggregation.decider", "uncached_tokens",
              "needs order: decode_first, which chooses the instance whose cached tokens it reads");
}

void report_all(Inspection& seen, const std::vector<sim::Violation>& found) {
  for (const auto& [path, value, allowed] : found) seen.report(path, value, allowed);
}

void sizes_are_possible(Inspection& seen) {
  report_all(seen, violations_by_scaling(seen.simulation));
}

void instances_can_fail(Inspection& seen) {
  report_all(seen, violations_by_faults(seen.simulation));
}

void gateways_can_fail(Inspection& seen) {
  report_all(seen, violations_by_gateway_faults(seen.simulation));
}

void hedges_are_possible(Inspection& seen) {
  report_all(seen, violations_by_hedges(seen.simulation));
}

void submissions_have_instances(Inspection& seen) {
  report_all(seen, violations_by_instances_of_submissions(seen.simulation));
}

void prompts_can_be_handed_off(Inspection& seen) {
  report_all(seen, violations_by_hand_offs(seen.simulation));
}

void streaming_traces_no_candidates(Inspection& seen) {
  const metrics::Metrics& metrics = seen.simulation.metrics;
  if (!metrics.streaming || metrics.traced_candidates == 0) return;
  seen.report("metrics.traced_candidates", std::to_string(metrics.traced_candidates),
              "must be 0 in streaming mode, which keeps no data per request");
}

// Where all requests are kept, attempts beside others need rows behind all of them.
void late_notices_suit_retries(Inspection& seen) {
  const Simulation& simulation = seen.simulation;
  if (!may_retry_beside(simulation)) return;
  const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
  const bool is_closed = seen.synthetic
                             ? seen.synthetic->is_empty() || workload::has_users(*seen.synthetic)
                             : trace->max_in_flight > 0;
  const bool submits = std::ranges::any_of(
      simulation.changes, [](const Change& change) { return !change.submit.empty(); });
  if (!is_closed && !submits) return;
  seen.report("metrics.streaming", "false",
              "must be true if requests come from closed loops, max_in_flight or outside the "
              "workload, and clients hedge (reaction.hedge), or retry after their timeouts while "
              "instances notice late that they have left (instances[].notices_departure_after_s)");
}

void pools_notice_departures(Inspection& seen) {
  with_pools(seen, [](const instance::InstanceGroup& group, const auto& report) {
    if (!group.notices_late()) return;
    report(
        "notices_departure_after_s",
        group.notices_departure_after_s ? sim::to_text(*group.notices_departure_after_s) : "null",
        "must be 0 in a group with a role");
  });
}

void models_are_served(Inspection& seen) {
  const Simulation& simulation = seen.simulation;
  if (!names_models(simulation)) return;
  const auto check = [&](const auto& names, const std::string& list) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string& model = names[i].model;
      const bool is_served = std::ranges::any_of(simulation.instances, [&](const auto& group) {
        return group.models.empty() || std::ranges::find(group.models, model) != group.models.end();
      });
      if (model.empty() || is_served) continue;
      seen.report(entry(list, i, "model"), quoted(model),
                  "must be among the models of a group of instances");
    }
  };
  check(simulation.tenants, "tenants");
  if (seen.synthetic) check(seen.synthetic->clients, "workload.clients");
  for (std::size_t i = 0; i < simulation.changes.size(); ++i) {
    check(simulation.changes[i].submit, entry("changes", i, "submit"));
  }
  if (!has_pools(simulation)) return;
  seen.report("instances", "with pools",
              "must have one pool where tenants or requests name a model, not prefill and decode "
              "pools");
}

// Only of a simulation that is valid without them.
void changes_are_possible(Inspection& seen) {
  if (seen.simulation.changes.empty() || !seen.reported().empty()) return;
  later_versions(seen.simulation, seen.reported());
}

constexpr Rule kRules[] = {
    {"tenants_differ", {"tenants[].name"}, tenants_differ},
    {"slo_classes_differ", {"slo_classes[].name"}, slo_classes_differ},
    {"fleet_has_instances", {"instances"}, fleet_has_instances},
    {"sizes_are_possible",
     {"fleet.initial_instances", "fleet.target_instances", "fleet.autoscaler.max_instances",
      "fleet.autoscaler.min_instances", "fleet.autoscaler.metric",
      "fleet.autoscaler.optimization_target", "fleet.prefill", "fleet.decode",
      "fleet.max_pool_instances"},
     sizes_are_possible},
    {"exact_estimate_is_possible",
     {"instances[].plant", "instances[].data_parallel_size", "instances[].ingress",
      "instances[].front_end"},
     exact_estimate_is_possible},
    {"pools_are_whole", {"instances"}, pools_are_whole},
    {"pools_are_alike",
     {"instances[].block_size_tokens", "instances[].kv_bytes_per_token"},
     pools_are_alike},
    {"domains_are_stated", {"instances[].transfer_domain"}, domains_are_stated},
    {"pools_are_read_whole", {"instances[].data_parallel_size"}, pools_are_read_whole},
    {"engines_can_serve_legs",
     {"instances[].plant", "instances[].lockstep_ranks", "instances[].front_end",
      "instances[].ingress", "instances[].scheduler", "instances[].completion",
      "instances[].preemption", "instances[].kv_cache.allocation", "instances[].chunked_prefill",
      "instances[].prefill_schedule_interval", "instances[].long_prefill_token_threshold_adaptive",
      "instances[].speculative_decoding.num_drafts", "instances[].engine_rules"},
     engines_can_serve_legs},
    {"pools_are_served_plainly",
     {"fleet.initial_instances", "fleet.target_instances", "fleet.autoscaler",
      "gateway.decision_latency_s", "gateway.admission", "router", "metrics.accounting"},
     pools_are_served_plainly},
    {"decider_suits_order", {"disaggregation.decider"}, decider_suits_order},
    {"horizon_is_after_warm_up", {"warm_up_s"}, horizon_is_after_warm_up},
    {"reported_latencies_are_synchronous",
     {"instances[].async_scheduling"},
     reported_latencies_are_synchronous},
    {"tracked_output_is_kept", {"instances[].preemption"}, tracked_output_is_kept},
    {"instances_can_fail",
     {"changes[].faults[].instance", "changes[].faults[]", "fleet.migration.limit",
      "instances[].plant", "instances[].lockstep_ranks", "instances[].front_end",
      "instances[].completion", "instances[].preemption",
      "instances[].speculative_decoding.num_drafts", "gateway.admission", "metrics.accounting"},
     instances_can_fail},
    {"gateways_can_fail",
     {"changes[].faults[].gateway", "fleet.migration.limit", "gateway.admission",
      "instances[].role", "instances[].notices_departure_after_s"},
     gateways_can_fail},
    {"hedges_are_possible",
     {"instances", "tenants", "changes", "fleet", "gateway.decision_latency_s",
      "metrics.accounting", "instances[].completion", "changes[].submit"},
     hedges_are_possible},
    {"streaming_traces_no_candidates",
     {"metrics.traced_candidates"},
     streaming_traces_no_candidates},
    {"late_notices_suit_retries", {"metrics.streaming"}, late_notices_suit_retries},
    {"pools_notice_departures", {"instances[].notices_departure_after_s"}, pools_notice_departures},
    {"models_are_served",
     {"tenants[].model", "workload.clients[].model", "changes[].submit[].model", "instances"},
     models_are_served},
    {"names_can_be_counted", {"tenants", "slo_classes", "instances"}, names_can_be_counted},
    {"sensed_tenant_is_known", {"gateway.sensor.tenant"}, sensed_tenant_is_known},
    {"sensed_class_is_known", {"gateway.sensor.slo_class"}, sensed_class_is_known},
    {"names_in_limits_are_known",
     {"gateway.limit[].tenants", "gateway.limit[].slo_classes", "gateway.limit[].models"},
     names_in_limits_are_known},
    {"names_in_admission_are_known", {"gateway.admission[]"}, names_in_admission_are_known},
    {"slo_classes_in_bands_are_known", {"gateway.bands[]"}, slo_classes_in_bands_are_known},
    {"clients_can_send",
     {"workload.clients[].slo_class", "workload.clients[].tenant", "workload.clients[].arrivals"},
     clients_can_send},
    {"submissions_are_known",
     {"changes[].submit[].tenant", "changes[].submit[].slo_class"},
     submissions_are_known},
    {"submissions_have_instances", {"changes[].submit[].instance"}, submissions_have_instances},
    {"prompts_can_be_handed_off",
     {"changes[].submit[].prefill_only", "changes[].hand_off[].request",
      "changes[].hand_off[].instance"},
     prompts_can_be_handed_off},
    {"cancellations_follow_arrivals", {"changes[].cancel[]"}, cancellations_follow_arrivals},
    {"changes_are_possible", {"changes[].set"}, changes_are_possible},
};

}  // namespace

std::span<const Rule> rules() { return kRules; }

void check_rules(std::span<const Rule> rules, const Simulation& simulation, const std::string& path,
                 std::vector<sim::Violation>& out) {
  Inspection inspection(simulation, path, out);
  for (const Rule& rule : rules) rule.check(inspection);
}

void Simulation::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  check_rules(rules(), *this, path, out);
}

}  // namespace spillway::cluster
