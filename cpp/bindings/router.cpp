#include "bindings/bindings.h"
#include "bindings/config_class.h"
#include "router/policies.h"

namespace spillway::bindings {

void bind_router(py::module_& module) {
  bind_policies<router::AnyFilter>(module);
  bind_policies<router::AnyScorer>(module);
  bind_policies<router::AnyPicker>(module);
  bind_policies<router::Router>(module);
}

}  // namespace spillway::bindings
