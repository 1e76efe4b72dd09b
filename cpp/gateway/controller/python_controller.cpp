#include "gateway/controller/python_controller.h"

#include "gateway/controller/controller.h"
#include "gateway/controller/controller_factory.h"
#include "sim/error.h"

namespace spillway::gateway {

std::unique_ptr<ControllerPolicy> make(const PythonController& config, std::uint64_t) {
  if (!config.factory)
    throw sim::ConfigError({sim::not_imported("gateway.controller", config.policy)});
  return config.factory->make_controller();
}

}  // namespace spillway::gateway
