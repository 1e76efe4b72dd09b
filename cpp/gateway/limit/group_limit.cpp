#include "gateway/limit/group_limit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

// Whether each of the tenants or classes is in the list; an empty list names all.
template <class Named>
std::vector<bool> named(std::span<const Named> all, const std::vector<std::string>& list) {
  std::vector<bool> in;
  in.reserve(all.size());
  for (const Named& entry : all) {
    in.push_back(list.empty() || std::ranges::find(list, entry.name) != list.end());
  }
  return in;
}

class GroupLimitPolicy final : public LimitPolicy {
 public:
  GroupLimitPolicy(const GroupLimit& config, std::span<const workload::Tenant> tenants,
                   std::span<const workload::SloClass> slo_classes)
      : limit_(config.max_in_flight),
        has_tenant_(named(tenants, config.tenants)),
        has_class_(named(slo_classes, config.slo_classes)),
        models_(config.models) {}
  bool is_open(const Occasion&) const override { return true; }
  bool may_start(const signals::RequestView& request, const Occasion&) const override {
    return in_flight_ < limit_ || !concerns(request);
  }
  void started(const signals::RequestView& request) override { in_flight_ += concerns(request); }
  void ended(const signals::RequestView& request) override { in_flight_ -= concerns(request); }
  std::optional<double> setting() const override { return static_cast<double>(limit_); }
  std::optional<double> permits() const override { return std::nullopt; }
  void resize(double limit) override { limit_ = std::llround(limit); }
  void change(const Limit& to, std::span<const workload::Tenant>) override {
    limit_ = std::get<GroupLimit>(to).max_in_flight;
  }
  bool depends_on_request() const override { return true; }
  bool is_own() const override { return true; }

 private:
  bool concerns(const signals::RequestView& request) const {
    return has_tenant_[request.tenant()] && has_class_[request.slo_class()] &&
           (models_.empty() || std::ranges::find(models_, request.model()) != models_.end());
  }

  std::int64_t limit_;
  std::vector<bool> has_tenant_;  // by tenant
  std::vector<bool> has_class_;   // by class
  std::vector<std::string> models_;
  std::int64_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const GroupLimit& config,
                                  std::span<const workload::Tenant> tenants,
                                  std::span<const workload::SloClass> slo_classes) {
  return std::make_unique<GroupLimitPolicy>(config, tenants, slo_classes);
}

}  // namespace spillway::gateway
