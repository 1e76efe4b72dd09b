#include "bindings/bindings.h"
#include "bindings/config_class.h"
#include "signals/busy_monitor.h"
#include "signals/prefix_index.h"
#include "signals/sensor.h"
#include "signals/transports.h"

namespace spillway::bindings {

void bind_signals(py::module_& module) {
  bind_policies<signals::Signals>(module);
  bind_config<signals::PrefixIndexConfig>(module);
  bind_config<signals::Sensor>(module);
  bind_config<signals::BusyThresholdChange>(module);
  bind_config<signals::BusyMonitor>(module);
}

}  // namespace spillway::bindings
