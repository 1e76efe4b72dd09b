#include "fleet/fleet.h"
#include "bindings/bindings.h"
#include "bindings/config_class.h"

namespace spillway::bindings {

void bind_fleet(py::module_& module) {
  bind_policies<fleet::Autoscaler>(module);
  bind_config<fleet::FleetChange>(module);
  bind_config<fleet::Fleet>(module);
}

}  // namespace spillway::bindings
