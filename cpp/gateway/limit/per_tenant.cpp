#include "gateway/limit/per_tenant.h"

#include <vector>

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class PerTenantPolicy final : public LimitPolicy {
 public:
  PerTenantPolicy(const PerTenant& config, std::span<const workload::Tenant> tenants) {
    for (const workload::Tenant& tenant : tenants) {
      free_.push_back(tenant.max_in_flight.value_or(config.max_in_flight));
    }
  }
  bool is_open(const Occasion&) const override { return true; }
  bool may_start(const signals::RequestView& request, const Occasion&) const override {
    return free_[request.tenant()] > 0;
  }
  void started(const signals::RequestView& request) override { --free_[request.tenant()]; }
  void ended(const signals::RequestView& request) override { ++free_[request.tenant()]; }
  bool depends_on_request() const override { return true; }

 private:
  std::vector<std::int64_t> free_;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const PerTenant& config,
                                  std::span<const workload::Tenant> tenants) {
  return std::make_unique<PerTenantPolicy>(config, tenants);
}

}  // namespace spillway::gateway
