#include "workload/tenants.h"

namespace spillway::workload {

std::vector<SloClass> default_slo_classes() {
  return {{.name = "critical", .priority = 4},
          {.name = "standard", .priority = 3},
          {.name = "batch", .priority = -1},
          {.name = "sheddable", .priority = -2},
          {.name = "background", .priority = -3}};
}

}  // namespace spillway::workload
