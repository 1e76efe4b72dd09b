#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// A tenant's budget.
struct TenantShare {
  std::string tenant = "default";
  double share = 1;

  static constexpr std::string_view type_name = "TenantShare";
  static constexpr std::string_view doc = "Share of the fleet's seats that one tenant may take.";
  static void fields(auto field) {
    field("tenant", &TenantShare::tenant, "Name of the tenant.");
    field("share", &TenantShare::share, "Share of the seats of all instances.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 1)
        .runtime();
  }
};

/// Admits a tenant's sheddable requests only while it holds less than its share of the seats.
struct TenantBudget {
  std::optional<double> default_share;
  std::vector<TenantShare> budgets;

  static constexpr std::string_view kind = "tenant_budget", type_name = "TenantBudget";
  static constexpr std::string_view doc =
      "Rejects sheddable requests (negative priority) of a tenant that has more requests in flight "
      "than its share of the total max_num_seqs of all instances (BLIS's tenant budgets). Other "
      "requests are never rejected, but count. A dispatch counts after its instant, so a burst at "
      "one instant passes.";
  static void fields(auto field) {
    field("default_share", &TenantBudget::default_share,
          "Share of tenants without an entry in budgets; unset: they have no limit.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 1)
        .runtime();
    field("budgets", &TenantBudget::budgets, "Tenants with their own share.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  static constexpr bool observes = true;
  static constexpr std::array reasons{
      workload::Reason{"tenant_budget", workload::categories::kRateLimited,
                       "the tenant has more in flight than its share and the class is sheddable"}};
};

std::unique_ptr<AdmissionPolicy> make(const TenantBudget& config, const Scope& scope);

}  // namespace spillway::gateway
