#include "gateway/limit/unlimited.h"

namespace spillway::gateway {

namespace {

class UnlimitedPolicy final : public LimitPolicy {
 public:
  bool is_open(sim::Time) const override { return true; }
  bool may_start(const signals::RequestView&, sim::Time) const override { return true; }
  void started(const signals::RequestView&, sim::Time) override {}
  void first_token(const signals::RequestView&, sim::Time) override {}
  void ended(const signals::RequestView&, sim::Time) override {}
  void resize(double, sim::Time) override {}
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const Unlimited&) { return std::make_unique<UnlimitedPolicy>(); }

}  // namespace spillway::gateway
