#include "bindings/bindings.h"
#include "bindings/config_class.h"
#include "signals/transports.h"

namespace spillway::bindings {

void bind_signals(py::module_& module) { bind_policies<signals::Signals>(module); }

}  // namespace spillway::bindings
