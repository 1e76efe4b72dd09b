#include "router/python_router.h"

#include "router/policy.h"

namespace spillway::router {

std::unique_ptr<RoutingPolicy> make(const PythonRouter& config) {
  return config.make_policy("router");
}

}  // namespace spillway::router
