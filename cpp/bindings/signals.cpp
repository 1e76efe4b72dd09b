#include "bindings/bindings.h"
#include "bindings/config_class.h"
#include "signals/prefix_index.h"
#include "signals/transports.h"

namespace spillway::bindings {

void bind_signals(py::module_& module) {
  bind_policies<signals::Signals>(module);
  bind_config<signals::PrefixIndexConfig>(module);
}

}  // namespace spillway::bindings
