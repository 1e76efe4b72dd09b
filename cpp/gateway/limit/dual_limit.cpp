#include "gateway/limit/dual_limit.h"

#include <cmath>
#include <vector>

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class DualLimitPolicy final : public LimitPolicy {
 public:
  explicit DualLimitPolicy(const DualLimit& config)
      : max_in_flight_(config.max_in_flight),
        max_awaiting_(config.max_awaiting_first_token),
        until_prompt_(config.until == AwaitedStage::prompt) {}
  bool is_open(const Occasion&) const override {
    return in_flight_ < max_in_flight_ && awaiting_ < max_awaiting_;
  }
  bool may_start(const signals::RequestView&, const Occasion& occasion) const override {
    return is_open(occasion);
  }
  void started(const signals::RequestView& request) override {
    if (awaits_.size() <= request.id().index()) awaits_.resize(request.id().index() + 1);
    awaits_[request.id().index()] = true;
    ++in_flight_;
    ++awaiting_;
  }
  void first_token(const signals::RequestView& request) override {
    if (!awaits_[request.id().index()]) return;
    awaits_[request.id().index()] = false;
    --awaiting_;
  }
  void prompt_computed(const signals::RequestView& request) override {
    if (until_prompt_) first_token(request);
  }
  void ended(const signals::RequestView& request) override {
    first_token(request);
    --in_flight_;
  }
  std::optional<double> setting() const override { return static_cast<double>(max_in_flight_); }
  bool frees_at_first_token() const override { return true; }
  void resize(double limit) override { max_in_flight_ = std::llround(limit); }
  void change(const Limit& to, std::span<const workload::Tenant>) override {
    max_in_flight_ = std::get<DualLimit>(to).max_in_flight;
    max_awaiting_ = std::get<DualLimit>(to).max_awaiting_first_token;
  }

 private:
  std::int64_t max_in_flight_;
  std::int64_t max_awaiting_;
  bool until_prompt_;
  std::int64_t in_flight_ = 0;
  std::int64_t awaiting_ = 0;
  std::vector<bool> awaits_;  // by request
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const DualLimit& config) {
  return std::make_unique<DualLimitPolicy>(config);
}

}  // namespace spillway::gateway
