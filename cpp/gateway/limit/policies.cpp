#include "gateway/limit/policies.h"

#include "gateway/limit/limit.h"

namespace spillway::gateway {

std::unique_ptr<LimitPolicy> make_limit(const Limit& limit,
                                        std::span<const workload::Tenant> tenants) {
  return std::visit(
      [&](const auto& config) {
        if constexpr (requires { make(config, tenants); }) {
          return make(config, tenants);
        } else {
          return make(config);
        }
      },
      limit);
}

}  // namespace spillway::gateway
