#include "gateway/gateway.h"
#include "bindings/bindings.h"
#include "bindings/config_class.h"

namespace spillway::bindings {

void bind_gateway(py::module_& module) {
  bind_config<gateway::TtftBudget>(module);
  bind_config<gateway::TtftMargin>(module);
  bind_config<gateway::TtftCalibration>(module);
  bind_config<gateway::ColdStart>(module);
  bind_config<gateway::TenantShare>(module);
  bind_config<gateway::TenantRate>(module);
  bind_config<gateway::ClassReserve>(module);
  bind_policies<gateway::Admission>(module);
  bind_config<gateway::Cost>(module);
  bind_policies<gateway::Fairness>(module);
  bind_config<gateway::Queue>(module);
  bind_policies<gateway::Limit>(module);
  bind_policies<gateway::UsageLimit>(module);
  bind_config<gateway::Eviction>(module);
  bind_policies<gateway::Controller>(module);
  bind_config<gateway::Guard>(module);
  bind_config<gateway::Band>(module);
  bind_config<gateway::Gateway>(module);
}

}  // namespace spillway::bindings
