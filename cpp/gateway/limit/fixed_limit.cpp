#include "gateway/limit/fixed_limit.h"

#include <cmath>

namespace spillway::gateway {

namespace {

class FixedLimitPolicy final : public LimitPolicy {
 public:
  explicit FixedLimitPolicy(std::int64_t limit) : limit_(limit) {}
  bool is_open(sim::Time) const override { return in_flight_ < limit_; }
  bool may_start(const signals::RequestView&, sim::Time) const override {
    return in_flight_ < limit_;
  }
  void started(const signals::RequestView&, sim::Time) override { ++in_flight_; }
  void first_token(const signals::RequestView&, sim::Time) override {}
  void ended(const signals::RequestView&, sim::Time) override { --in_flight_; }
  void resize(double limit, sim::Time) override { limit_ = std::llround(limit); }

 private:
  std::int64_t limit_;
  std::int64_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const FixedLimit& config) {
  return std::make_unique<FixedLimitPolicy>(config.max_in_flight);
}

}  // namespace spillway::gateway
