#include "router/python_router.h"

#include "router/policy.h"
#include "router/router_factory.h"
#include "sim/error.h"

namespace spillway::router {

std::unique_ptr<RoutingPolicy> make(const PythonRouter& config) {
  if (!config.factory) throw sim::ConfigError({sim::not_imported("router", config.policy)});
  return config.factory->make_router();
}

}  // namespace spillway::router
