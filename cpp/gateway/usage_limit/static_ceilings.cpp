#include "gateway/usage_limit/static_ceilings.h"

#include "gateway/usage_limit/usage_limit.h"

namespace spillway::gateway {

namespace {

class StaticCeilingsPolicy final : public UsageLimitPolicy {
 public:
  void set_ceilings(double, std::span<double>) override {}
};

}  // namespace

std::unique_ptr<UsageLimitPolicy> make(const StaticCeilings&, std::span<const std::int64_t>) {
  return std::make_unique<StaticCeilingsPolicy>();
}

}  // namespace spillway::gateway
