#include "gateway/controller/python_controller.h"

#include "gateway/controller/controller.h"

namespace spillway::gateway {

std::unique_ptr<ControllerPolicy> make(const PythonController& config, std::uint64_t) {
  return config.make_policy("gateway.controller");
}

}  // namespace spillway::gateway
