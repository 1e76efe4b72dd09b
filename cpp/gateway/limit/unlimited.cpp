#include "gateway/limit/unlimited.h"

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class UnlimitedPolicy final : public LimitPolicy {
 public:
  bool is_open(const Occasion&) const override { return true; }
  bool may_start(const signals::RequestView&, const Occasion&) const override { return true; }
  void started(const signals::RequestView&) override {}
  void ended(const signals::RequestView&) override {}
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const Unlimited&) { return std::make_unique<UnlimitedPolicy>(); }

}  // namespace spillway::gateway
