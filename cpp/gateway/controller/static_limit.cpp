#include "gateway/controller/static_limit.h"

#include "gateway/controller/controller.h"

namespace spillway::gateway {

namespace {

class StaticLimitPolicy final : public ControllerPolicy {
 public:
  sim::Time settled_until(const Reading&, double) const override { return sim::kForever; }
  double tick(const Reading&, double limit, sim::Time) override { return limit; }
};

}  // namespace

std::unique_ptr<ControllerPolicy> make(const StaticLimit&, std::uint64_t) {
  return std::make_unique<StaticLimitPolicy>();
}

}  // namespace spillway::gateway
