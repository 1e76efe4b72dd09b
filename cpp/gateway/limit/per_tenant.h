#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sim/schema/range.h"
#include "workload/tenants.h"

namespace spillway::gateway {

class LimitPolicy;

/// A maximum of requests in flight per tenant.
struct PerTenant {
  std::int64_t max_in_flight = 64;

  static constexpr std::string_view kind = "per_tenant", type_name = "PerTenant";
  static constexpr std::string_view doc =
      "A semaphore per tenant: at most max_in_flight of its requests between dispatch and last "
      "token, regardless of idle permits of other tenants.";
  static void fields(auto field) {
    field("max_in_flight", &PerTenant::max_in_flight,
          "Number of permits of each tenant without a max_in_flight of its own; 0: none of its "
          "requests is dispatched.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 1024)
        .runtime();
  }
};

std::unique_ptr<LimitPolicy> make(const PerTenant& config,
                                  std::span<const workload::Tenant> tenants);

}  // namespace spillway::gateway
