#include "gateway/gateway.h"
#include "bindings/bindings.h"
#include "bindings/config_class.h"

namespace spillway::bindings {

void bind_gateway(py::module_& module) {
  bind_policies<gateway::Admission>(module);
  bind_config<gateway::Cost>(module);
  bind_policies<gateway::Fairness>(module);
  bind_policies<gateway::Limit>(module);
  bind_config<gateway::Band>(module);
  bind_config<gateway::Gateway>(module);
}

}  // namespace spillway::bindings
