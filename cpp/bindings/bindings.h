#pragma once

#include "bindings/casters.h"

namespace spillway::bindings {

// One function per folder of the core, called in the order of the data flow.
void bind_sim(py::module_& module);
void bind_workload(py::module_& module);
void bind_signals(py::module_& module);
void bind_gateway(py::module_& module);
void bind_router(py::module_& module);
void bind_fleet(py::module_& module);
void bind_instance(py::module_& module);
void bind_metrics(py::module_& module);
void bind_cluster(py::module_& module);
void bind_search(py::module_& module);

}  // namespace spillway::bindings
