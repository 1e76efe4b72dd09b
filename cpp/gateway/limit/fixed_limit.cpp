#include "gateway/limit/fixed_limit.h"

#include <cmath>

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class FixedLimitPolicy final : public LimitPolicy {
 public:
  explicit FixedLimitPolicy(std::int64_t limit) : limit_(limit) {}
  bool is_open(const Occasion&) const override { return in_flight_ < limit_; }
  bool may_start(const signals::RequestView&, const Occasion& occasion) const override {
    return is_open(occasion);
  }
  void started(const signals::RequestView&) override { ++in_flight_; }
  void ended(const signals::RequestView&) override { --in_flight_; }
  std::optional<double> setting() const override { return static_cast<double>(limit_); }
  void resize(double limit) override { limit_ = std::llround(limit); }
  void change(const Limit& to, std::span<const workload::Tenant>) override {
    limit_ = std::get<FixedLimit>(to).max_in_flight;
  }

 private:
  std::int64_t limit_;
  std::int64_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const FixedLimit& config) {
  return std::make_unique<FixedLimitPolicy>(config.max_in_flight);
}

}  // namespace spillway::gateway
