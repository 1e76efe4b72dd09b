#include "bindings/bindings.h"

PYBIND11_MODULE(_core, m, py::mod_gil_not_used()) {
  using namespace spillway::bindings;
  m.doc() = "The compiled core of Spillway. Sub-modules mirror the folders of cpp/.";
  const auto add = [&](const char* name, const char* doc, void (*bind)(py::module_&)) {
    py::module_ sub = m.def_submodule(name, doc);
    bind(sub);
  };
  add("sim", "Errors, values, random streams.", bind_sim);
  add("workload", "Who asks what, and when.", bind_workload);
  add("signals", "What a decision may see.", bind_signals);
  add("gateway", "If, when and for whom a request is let through.", bind_gateway);
  add("router", "Which instance.", bind_router);
  add("fleet", "Which instances are there when.", bind_fleet);
  add("instance", "One model server.", bind_instance);
  add("metrics", "What happened.", bind_metrics);
  add("cluster", "One experiment.", bind_cluster);
  add("search", "Where to measure next.", bind_search);
}
