#include "gateway/limit/policies.h"

#include "gateway/limit/limit.h"

namespace spillway::gateway {

std::unique_ptr<LimitPolicy> make_limit(const Limit& limit,
                                        std::span<const workload::Tenant> tenants,
                                        std::span<const workload::SloClass> slo_classes) {
  return std::visit(
      [&](const auto& config) {
        if constexpr (requires { make(config, tenants, slo_classes); }) {
          return make(config, tenants, slo_classes);
        } else if constexpr (requires { make(config, tenants); }) {
          return make(config, tenants);
        } else {
          return make(config);
        }
      },
      limit);
}

}  // namespace spillway::gateway
