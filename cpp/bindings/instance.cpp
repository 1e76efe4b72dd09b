#include "bindings/bindings.h"
#include "bindings/config_class.h"
#include "instance/group.h"

namespace spillway::bindings {

void bind_instance(py::module_& module) {
  bind_config<instance::ClassPriority>(module);
  bind_policies<instance::Scheduler>(module);
  bind_policies<instance::Latency>(module);
  bind_policies<instance::Plant>(module);
  bind_policies<instance::Ingress>(module);
  bind_config<instance::KvCache>(module);
  bind_config<instance::InstanceGroup>(module);
}

}  // namespace spillway::bindings
