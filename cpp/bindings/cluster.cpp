#include "bindings/bindings.h"
#include "bindings/config_class.h"
#include "cluster/profiles.h"
#include "cluster/run.h"

namespace spillway::bindings {

namespace {

// A column as a read-only array that owns the vector it was made from.
template <class T>
py::array column(std::vector<T>&& values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  const auto size = static_cast<py::ssize_t>(owned->size());
  const T* data = owned->data();
  const py::capsule owner(owned.release(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
  py::array_t<T> array(size, data, owner);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

py::dict columns_of(cluster::Columns& columns) {
  py::dict result;
  result["outcome"] = column(std::move(columns.outcome));
  result["reason"] = column(std::move(columns.reason));
  result["admitted"] = column(std::move(columns.admitted)).attr("view")("bool");
  result["tenant"] = column(std::move(columns.tenant));
  result["slo_class"] = column(std::move(columns.slo_class));
  result["instance"] = column(std::move(columns.instance));
  result["input_tokens"] = column(std::move(columns.input_tokens));
  result["output_tokens"] = column(std::move(columns.output_tokens));
  result["preemptions"] = column(std::move(columns.preemptions));
  result["arrival_s"] = column(std::move(columns.arrival_s));
  result["ttft_s"] = column(std::move(columns.ttft_s));
  result["e2e_s"] = column(std::move(columns.e2e_s));
  result["tpot_s"] = column(std::move(columns.tpot_s));
  result["queue_s"] = column(std::move(columns.queue_s));
  result["scheduling_delay_s"] = column(std::move(columns.scheduling_delay_s));
  result["itl_mean_s"] = column(std::move(columns.itl_mean_s));
  return result;
}

py::list instances_of(const std::vector<cluster::InstanceReport>& reports) {
  py::list result;
  for (const auto& report : reports) {
    py::dict entry;
    entry["completed"] = report.completed;
    entry["refused"] = report.refused;
    entry["preemptions"] = report.preemptions;
    entry["steps"] = report.steps;
    entry["mean_waiting"] = report.mean_waiting;
    entry["mean_waiting_at_step"] = report.mean_waiting_at_step;
    result.append(entry);
  }
  return result;
}

// True once a signal handler has raised, e.g. KeyboardInterrupt.
bool signal_raised() {
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

py::dict run(const cluster::Simulation& simulation, std::uint64_t seed) {
  cluster::Output output;
  {
    const py::gil_scoped_release unlocked;
    output = cluster::run(simulation, seed, &signal_raised);
  }
  py::dict result;
  result["columns"] = columns_of(output.columns);
  result["reasons"] = output.reasons;
  result["tenants"] = output.tenants;
  result["slo_classes"] = output.slo_classes;
  result["request_id"] = output.requests->request_id;
  result["ledger"] = to_python(output.ledger.to_value());
  result["summary"] = to_python(output.summary.overall);
  result["by_class"] = to_python(output.summary.by_class);
  result["by_tenant"] = to_python(output.summary.by_tenant);
  result["instances"] = instances_of(output.instances);
  result["steps"] = output.steps;
  result["events"] = output.events;
  result["end_s"] = output.end_s;
  return result;
}

}  // namespace

void bind_cluster(py::module_& module) {
  bind_config<cluster::Simulation>(module);
  module.def("run", &run, py::arg("simulation"), py::arg("seed"),
             "Runs one experiment under one seed; see spillway.simulate for the public form.");
  py::list outcomes;
  for (const auto name : workload::kOutcomeNames) outcomes.append(py::str(std::string(name)));
  module.attr("outcomes") = py::tuple(outcomes);
  py::list settings;
  for (const auto& setting : cluster::profile_settings()) {
    py::dict values;
    values["vllm"] = std::string(setting.vllm);
    values["blis_0_6"] = std::string(setting.blis_0_6);
    settings.append(py::make_tuple(std::string(setting.path), values, std::string(setting.why)));
  }
  module.attr("profile_settings") = py::tuple(settings);
}

}  // namespace spillway::bindings
