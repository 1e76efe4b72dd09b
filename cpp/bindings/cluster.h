#pragma once

#include "bindings/casters.h"

namespace spillway::cluster {
struct Output;
}

namespace spillway::bindings {

/// True once a signal handler has raised, e.g. KeyboardInterrupt, which it does in the main thread.
bool signal_raised();
/// What a run returns.
py::dict to_dict(const cluster::Output& output);
/// The part of the module `cluster` that holds runs.
void bind_session(py::module_& module);

}  // namespace spillway::bindings
