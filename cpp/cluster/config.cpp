#include "cluster/config.h"

#include <utility>

#include "cluster/changes.h"
#include "sim/names.h"
#include "sim/schema/codec.h"
#include "workload/limits.h"
#include "workload/requests.h"

namespace spillway::cluster {

namespace {

/// The names of the tenants or classes: those that the configuration states, then those that occur
/// elsewhere.
class Known {
 public:
  template <class Named>
  Known(const std::vector<Named>& stated, const char* what)
      : num_stated_(stated.size()), what_(what) {
    for (const Named& one : stated) add(one.name);
  }
  void add(std::string_view name) {
    index_.add(name);
    names_.push_back(name);
  }

  std::size_t num_names() const { return index_.num_names(); }
  bool states(std::string_view name) const { return index_.of(name) < num_stated_; }
  bool states_any() const { return num_stated_ > 0; }

  /// The stated names must differ.
  void check_unique(const std::string& path, std::vector<sim::Violation>& out) const {
    for (std::size_t i = 0; i < num_stated_; ++i) {
      if (index_.of(names_[i]) == i) continue;
      const std::string name(names_[i]);
      out.push_back({sim::index_path(path, i) + ".name", "'" + name + "'", "must be unique"});
    }
  }
  void check(const std::string& name, const std::string& path,
             std::vector<sim::Violation>& out) const {
    if (!index_.has(name)) out.push_back(violation(name, path, names_, out));
  }
  /// Reports a reference to a name that is not stated.
  void report_not_stated(const std::string& name, const std::string& path,
                         std::vector<sim::Violation>& out) const {
    if (out.size() >= sim::kShownViolations) {
      out.push_back(violation(name, path, {}, out));
      return;
    }
    const auto end = names_.begin() + static_cast<std::ptrdiff_t>(num_stated_);
    out.push_back(violation(name, path, {names_.begin(), end}, out));
  }

 private:
  sim::Violation violation(const std::string& name, const std::string& path,
                           const std::vector<std::string_view>& allowed,
                           const std::vector<sim::Violation>& earlier) const {
    return {path, "'" + name + "'",
            std::string("must be one of the ") + what_ + sim::did_you_mean(name, allowed, earlier)};
  }

  sim::NameIndex index_;
  std::vector<std::string_view> names_;
  std::size_t num_stated_;
  const char* what_;
};

/// Checks that the tenants and classes in the lists of a structure exist.
void check_named(const sim::Value& noun, const Known& tenants, const Known& slo_classes,
                 const std::string& path, std::vector<sim::Violation>& out) {
  for (const auto& [field, value] : *noun.get_if<sim::Value::Map>()) {
    const auto* list = value.get_if<sim::Value::List>();
    for (std::size_t i = 0; list && i < list->size(); ++i) {
      const std::string here = sim::index_path(sim::join_path(path, field), i);
      for (const auto& [known, name] :
           {std::pair(&tenants, "tenant"), std::pair(&slo_classes, "slo_class")}) {
        const sim::Value* named = (*list)[i].find(name);
        if (named) known->check(*named->get_if<std::string>(), sim::join_path(here, name), out);
      }
    }
  }
}

}  // namespace

void Simulation::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  Known known_tenants(tenants, "tenants"), known_classes(slo_classes, "slo_classes");
  known_tenants.check_unique(sim::join_path(path, "tenants"), out);
  known_classes.check_unique(sim::join_path(path, "slo_classes"), out);
  if (instances.empty()) {
    out.push_back({sim::join_path(path, "instances"), "[]", "must hold at least one group"});
  }
  std::int64_t total = 0;
  for (const auto& group : instances) total += group.count;
  const auto check_fleet = [&](const std::string& name, std::int64_t number) {
    if (number <= total) return;
    out.push_back({sim::join_path(path, "fleet." + name), std::to_string(number),
                   "must be <= the number of instances (" + std::to_string(total) + ")"});
  };
  if (fleet.initial_instances) check_fleet("initial_instances", *fleet.initial_instances);
  if (fleet.target_instances) check_fleet("target_instances", *fleet.target_instances);
  if (const auto* scaler = std::get_if<fleet::QueueScaler>(&fleet.autoscaler)) {
    check_fleet("autoscaler.max_instances", scaler->max_instances);
    if (scaler->min_instances > scaler->max_instances) {
      out.push_back({sim::join_path(path, "fleet.autoscaler.min_instances"),
                     std::to_string(scaler->min_instances),
                     "must be <= max_instances (" + std::to_string(scaler->max_instances) + ")"});
    }
  }
  if (gateway::needs_of(gateway).exact_estimate) {
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const instance::InstanceGroup& group = instances[i];
      const std::string here = sim::index_path(sim::join_path(path, "instances"), i);
      const char* why =
          "not supported with estimator: exact in gateway.admission, which can only predict a "
          "step_loop without ranks behind an open ingress";
      if (!std::holds_alternative<instance::StepLoop>(group.plant)) {
        out.push_back({here + ".plant", sim::to_text(sim::encode(group.plant)), why});
      }
      if (group.data_parallel_size > 1) {
        out.push_back(
            {here + ".data_parallel_size", std::to_string(group.data_parallel_size), why});
      }
      if (!std::holds_alternative<instance::Open>(group.ingress)) {
        out.push_back({here + ".ingress", sim::to_text(sim::encode(group.ingress)), why});
      }
    }
  }
  if (horizon_s && *horizon_s <= warm_up_s) {
    out.push_back({sim::join_path(path, "warm_up_s"), sim::to_text(warm_up_s),
                   "must be < horizon_s (" + sim::to_text(*horizon_s) + ")"});
  }
  for (std::size_t i = 0; metrics.uses_reported_latencies() && i < instances.size(); ++i) {
    const instance::InstanceGroup& group = instances[i];
    const bool has_steps = std::holds_alternative<instance::StepLoop>(group.plant);
    if (!has_steps || !group.async_scheduling) continue;
    out.push_back({sim::index_path(sim::join_path(path, "instances"), i) + ".async_scheduling",
                   "true", "must be false with a metrics.accounting that is not clock"});
  }
  for (std::size_t i = 0; busy_monitor.track_output_blocks && i < instances.size(); ++i) {
    if (instances[i].preemption == instance::Preemption::keep_emitted) continue;
    out.push_back(
        {sim::index_path(sim::join_path(path, "instances"), i) + ".preemption", "restart",
         "must be keep_emitted with busy_monitor.track_output_blocks, which counts tokens"});
  }
  if (metrics.streaming && metrics.traced_candidates > 0) {
    out.push_back({sim::join_path(path, "metrics.traced_candidates"),
                   std::to_string(metrics.traced_candidates),
                   "must be 0 in streaming mode, which keeps no data per request"});
  }
  // A trace has its own tenants and classes.
  const auto* synthetic = std::get_if<workload::Synthetic>(&workload);
  const auto* trace = std::get_if<workload::Trace>(&workload);
  for (std::size_t i = 0; synthetic && i < synthetic->clients.size(); ++i) {
    known_tenants.add(synthetic->clients[i].tenant);
  }
  std::vector<std::string> tenants_of_trace;
  std::vector<std::string> classes_of_trace;
  if (trace && trace->requests) {
    tenants_of_trace = workload::possible_tenants(*trace);
    classes_of_trace = workload::possible_slo_classes(*trace);
  }
  for (const std::string& name : tenants_of_trace) known_tenants.add(name);
  for (const std::string& name : classes_of_trace) known_classes.add(name);
  for (const auto& [known, name] :
       {std::pair(&known_tenants, "tenants"), std::pair(&known_classes, "slo_classes")}) {
    if (known->num_names() <= workload::kMaxNames) continue;
    out.push_back({sim::join_path(path, name), std::to_string(known->num_names()) + " names",
                   "must be <= " + std::to_string(workload::kMaxNames)});
  }
  if (gateway::is_controlled(gateway) && gateway.sensor.scope == signals::SensorScope::tenant) {
    known_tenants.check(gateway.sensor.tenant, sim::join_path(path, "gateway.sensor.tenant"), out);
  }
  // A trace without requests may have any tenants and classes.
  for (std::size_t i = 0; (synthetic || trace->requests) && i < gateway.admission.size(); ++i) {
    const std::string here = sim::index_path(sim::join_path(path, "gateway.admission"), i);
    check_named(sim::encode(gateway.admission[i]), known_tenants, known_classes, here, out);
  }
  // A configured client must refer to existing tenants and classes.
  for (std::size_t i = 0; synthetic && i < synthetic->clients.size(); ++i) {
    const workload::Client& client = synthetic->clients[i];
    const auto place = [&](const char* field) {
      return sim::join_path(sim::index_path(sim::join_path(path, "workload.clients"), i), field);
    };
    if (!known_classes.states(client.slo_class)) {
      known_classes.report_not_stated(client.slo_class, place("slo_class"), out);
    }
    if (known_tenants.states_any() && !known_tenants.states(client.tenant)) {
      known_tenants.report_not_stated(client.tenant, place("tenant"), out);
    }
    if (client.closed_loop() && !client.is_finite() && !synthetic->duration_s && !horizon_s) {
      out.push_back({place("arrivals"), "'closed_loop'",
                     "must have an end: set the client's duration_s or num_requests, or the "
                     "workload's duration_s"});
    }
  }
  // A trace without requests may have any tenants and classes.
  for (std::size_t i = 0; (synthetic || trace->requests) && i < changes.size(); ++i) {
    const std::string here = sim::index_path(sim::join_path(path, "changes"), i);
    for (std::size_t j = 0; j < changes[i].submit.size(); ++j) {
      const workload::Submission& one = changes[i].submit[j];
      const std::string place = sim::index_path(here + ".submit", j);
      known_tenants.check(one.tenant, place + ".tenant", out);
      known_classes.check(one.slo_class, place + ".slo_class", out);
    }
  }
  if (!changes.empty() && out.empty()) later_versions(*this, out);
}

}  // namespace spillway::cluster
