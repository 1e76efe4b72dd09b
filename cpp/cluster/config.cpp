#include "cluster/config.h"

#include <utility>

#include "sim/names.h"
#include "sim/schema/codec.h"
#include "workload/limits.h"
#include "workload/requests.h"

namespace spillway::cluster {

namespace {

template <class Named>
void check_unique(const std::vector<Named>& all, const std::string& path,
                  std::vector<sim::Violation>& out) {
  const sim::NameIndex index(all, &Named::name);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (index.of(all[i].name) < i) {
      out.push_back(
          {sim::index_path(path, i) + ".name", "'" + all[i].name + "'", "must be unique"});
    }
  }
}

/// The known tenants or classes.
class Known {
 public:
  template <class Named>
  Known(const std::vector<Named>& all, const char* what) : index_(all, &Named::name), what_(what) {
    for (const Named& one : all) names_.push_back(one.name);
  }

  std::size_t num_names() const { return index_.num_names(); }
  bool is_empty() const { return names_.empty(); }
  void check(const std::string& name, const std::string& path,
             std::vector<sim::Violation>& out) const {
    if (index_.has(name)) return;
    out.push_back({path, "'" + name + "'",
                   std::string("must be one of the ") + what_ + sim::did_you_mean(name, names_)});
  }

 private:
  sim::NameIndex index_;
  std::vector<std::string_view> names_;
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
  check_unique(tenants, sim::join_path(path, "tenants"), out);
  check_unique(slo_classes, sim::join_path(path, "slo_classes"), out);
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
  for (std::size_t i = 0; i < fleet.schedule.size(); ++i) {
    check_fleet(sim::index_path("schedule", i) + ".instances", fleet.schedule[i].instances);
  }
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
  std::vector<workload::Tenant> all_tenants = tenants;
  std::vector<workload::SloClass> all_classes = slo_classes;
  const auto* synthetic = std::get_if<workload::Synthetic>(&workload);
  const auto* trace = std::get_if<workload::Trace>(&workload);
  for (std::size_t i = 0; synthetic && i < synthetic->clients.size(); ++i) {
    all_tenants.push_back({synthetic->clients[i].tenant});
  }
  if (trace && trace->requests) {
    for (const std::string& name : trace->requests->tenants) all_tenants.push_back({name});
    for (const std::string& name : trace->requests->slo_classes) all_classes.push_back({name});
  }
  const Known known_tenants(all_tenants, "tenants"), known_classes(all_classes, "slo_classes");
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
  const Known stated_tenants(tenants, "tenants"), stated_classes(slo_classes, "slo_classes");
  for (std::size_t i = 0; synthetic && i < synthetic->clients.size(); ++i) {
    const workload::Client& client = synthetic->clients[i];
    const std::string here = sim::index_path(sim::join_path(path, "workload.clients"), i);
    stated_classes.check(client.slo_class, here + ".slo_class", out);
    if (!stated_tenants.is_empty()) stated_tenants.check(client.tenant, here + ".tenant", out);
    if (client.closed_loop() && !client.is_finite() && !synthetic->duration_s && !horizon_s) {
      out.push_back({here + ".arrivals", "'closed_loop'",
                     "must have an end: set the client's duration_s or num_requests, or the "
                     "workload's duration_s"});
    }
  }
}

}  // namespace spillway::cluster
