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
  add("workload", "Who asks what, and when.", bind_workload);
  add("signals", "What a decision may see.");
  add("gateway", "If, when and for whom a request is let through.");
  add("router", "Which instance.");
  add("fleet", "Which instances are there when.");
  add("instance", "One model server.");
  add("metrics", "What happened.", bind_metrics);
  add("cluster", "One experiment.", bind_cluster);
  add("search", "Where to measure next.", bind_search);
  add("testing", "Policies by themselves, without a run.", bind_testing);
}
