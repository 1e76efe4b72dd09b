#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// A tenant's own bucket.
struct TenantRate {
  std::string tenant = "default";
  double capacity_tokens = 10000;
  double refill_tokens_per_s = 1000;

  static constexpr std::string_view type_name = "TenantRate";
  static constexpr std::string_view doc = "The bucket of one tenant.";
  static void fields(auto field) {
    field("tenant", &TenantRate::tenant, "Name of the tenant.");
    field("capacity_tokens", &TenantRate::capacity_tokens,
          "Capacity of the bucket: the tenant's maximum burst.")
        .unit("tokens")
        .range(sim::at_least(0))
        .log_search(1000, 1e6)
        .runtime();
    field("refill_tokens_per_s", &TenantRate::refill_tokens_per_s,
          "Continuous refill: the tenant's sustained rate.")
        .unit("tokens/s")
        .range(sim::at_least(0))
        .log_search(100, 1e6)
        .runtime();
  }
};

/// The part of a bucket that a class must leave for the others.
struct ClassReserve {
  std::string slo_class = "sheddable";
  double share = 0;

  static constexpr std::string_view type_name = "ClassReserve";
  static constexpr std::string_view doc =
      "The part of a bucket that a class must leave for the others.";
  static void fields(auto field) {
    field("slo_class", &ClassReserve::slo_class, "Name of the class.");
    field("share", &ClassReserve::share, "Share of the capacity that it may not take.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 0.9)
        .runtime();
  }
};

/// Limits the rate of every tenant's prompt tokens.
struct TenantTokenBucket {
  double capacity_tokens = 10000;
  double refill_tokens_per_s = 1000;
  std::vector<TenantRate> own;
  std::vector<ClassReserve> reserves;

  static constexpr std::string_view kind = "tenant_token_bucket", type_name = "TenantTokenBucket";
  static constexpr std::string_view doc =
      "A token bucket per tenant, where token_bucket is one for all; a request takes its input "
      "tokens from the bucket of its tenant. Classes may have to leave a part of each bucket to "
      "more important ones. A request larger than its bucket is never admitted.";
  static void fields(auto field) {
    using Self = TenantTokenBucket;
    field("capacity_tokens", &Self::capacity_tokens,
          "Total capacity of the buckets, shared by the weights of the tenants, except for tenants "
          "with their own bucket.")
        .unit("tokens")
        .range(sim::at_least(0))
        .log_search(1000, 1e6)
        .runtime();
    field("refill_tokens_per_s", &Self::refill_tokens_per_s,
          "Total continuous refill of the buckets, shared in the same way.")
        .unit("tokens/s")
        .range(sim::at_least(0))
        .log_search(100, 1e6)
        .runtime();
    field("own", &Self::own, "Tenants with their own bucket.");
    field("reserves", &Self::reserves,
          "Classes that must leave a part of the bucket; the others may empty it.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  static constexpr std::array reasons{workload::Reason{
      "tenant_tokens", workload::categories::kRateLimited,
      "the tenant's bucket, less the reserve of the class, holds fewer tokens than the prompt"}};
};

std::unique_ptr<AdmissionPolicy> make(const TenantTokenBucket& config, const Scope& scope);

}  // namespace spillway::gateway
