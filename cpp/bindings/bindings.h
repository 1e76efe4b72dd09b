#pragma once

#include "bindings/casters.h"

namespace spillway::bindings {

// One function per folder of the core that has more than settings, in the order of the data flow,
// one for all settings, one for policies written in Python, and one for policies by themselves.
void bind_sim(py::module_& module);
void bind_settings(py::module_& module);
void bind_numerics(py::module_& module);
void bind_workload(py::module_& module);
void bind_metrics(py::module_& module);
void bind_cluster(py::module_& module);
void bind_search(py::module_& module);
void bind_policies(py::module_& module);
void bind_testing(py::module_& module);
void bind_deciders(py::module_& module);  // a part of bind_testing

}  // namespace spillway::bindings
