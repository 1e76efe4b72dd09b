#include "gateway/limit/per_tenant.h"

#include <vector>

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class PerTenantPolicy final : public LimitPolicy {
 public:
  PerTenantPolicy(const PerTenant& config, std::span<const workload::Tenant> tenants)
      : in_flight_(tenants.size()) {
    for (const workload::Tenant& tenant : tenants) {
      limits_.push_back(tenant.max_in_flight.value_or(config.max_in_flight));
    }
  }
  bool is_open(const Occasion&) const override { return true; }
  bool may_start(const signals::RequestView& request, const Occasion&) const override {
    return in_flight_[request.tenant()] < limits_[request.tenant()];
  }
  void started(const signals::RequestView& request) override { ++in_flight_[request.tenant()]; }
  void ended(const signals::RequestView& request) override { --in_flight_[request.tenant()]; }
  void change(const Limit& to, std::span<const workload::Tenant> tenants) override {
    limits_ = PerTenantPolicy(std::get<PerTenant>(to), tenants).limits_;
  }
  bool depends_on_request() const override { return true; }
  bool is_own() const override { return true; }

 private:
  std::vector<std::int64_t> limits_;     // by tenant
  std::vector<std::int64_t> in_flight_;  // by tenant
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const PerTenant& config,
                                  std::span<const workload::Tenant> tenants) {
  return std::make_unique<PerTenantPolicy>(config, tenants);
}

}  // namespace spillway::gateway
