#include "bindings/bindings.h"

PYBIND11_MODULE(_core, m, py::mod_gil_not_used()) {
  using namespace spillway::bindings;
  m.doc() =
      "The compiled core of Spillway. Sub-modules mirror the folders of cpp/, but for testing.";
  const auto add = [&](const char* name, const char* doc, auto... bind) {
    py::module_ sub = m.def_submodule(name, doc);
    (bind(sub), ...);
  };
  add("sim", "Errors, values, random streams, settings.", bind_sim, bind_settings);
  add("numerics", "Regressions.", bind_numerics);
  add("workload", "The offered requests: clients, users, traces.", bind_workload);
  add("signals", "The information available to decisions.");
  add("gateway", "The gateway: admission, queues, fairness, limits, controllers.");
  add("router", "The router: which instance takes a request.");
  add("fleet", "The instances in service: target and autoscaler.");
  add("instance", "One model server.");
  add("metrics", "Ledger, figures and summaries.", bind_metrics);
  add("cluster", "One experiment.", bind_cluster);
  add("search", "Where to measure next: Gaussian processes and acquisition.", bind_search);
  add("policies", "Policies written in Python.", bind_policies);
  add("testing", "Policies by themselves, without a run.", bind_testing);
}
