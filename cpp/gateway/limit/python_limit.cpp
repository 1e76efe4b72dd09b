#include "gateway/limit/python_limit.h"

#include "gateway/limit/limit.h"

namespace spillway::gateway {

std::unique_ptr<LimitPolicy> make(const PythonLimit& config,
                                  std::span<const workload::Tenant> tenants) {
  return config.make_policy("gateway.limit", tenants);
}

}  // namespace spillway::gateway
