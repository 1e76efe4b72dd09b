#include "gateway/limit/token_budget.h"

#include <cmath>

#include "gateway/counted_output.h"
#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class TokenBudgetPolicy final : public LimitPolicy {
 public:
  explicit TokenBudgetPolicy(const TokenBudget& config)
      : max_tokens_(config.max_tokens_in_flight),
        assumed_output_(config.assumed_output_tokens),
        output_length_(config.output_length) {}
  bool is_open(const Occasion&) const override { return in_flight_ < max_tokens_; }
  bool may_start(const signals::RequestView& request, const Occasion& occasion) const override {
    return is_open(occasion) && (in_flight_ == 0 || in_flight_ + tokens_of(request) <= max_tokens_);
  }
  void started(const signals::RequestView& request) override { in_flight_ += tokens_of(request); }
  void ended(const signals::RequestView& request) override { in_flight_ -= tokens_of(request); }
  std::optional<double> setting() const override { return static_cast<double>(max_tokens_); }
  std::optional<double> permits() const override { return std::nullopt; }
  bool depends_on_request() const override { return true; }
  void resize(double tokens) override { max_tokens_ = std::llround(tokens); }
  void change(const Limit& to, std::span<const workload::Tenant>) override {
    max_tokens_ = std::get<TokenBudget>(to).max_tokens_in_flight;
  }

 private:
  std::int64_t tokens_of(const signals::RequestView& request) const {
    return request.input_tokens() + counted_output(request, output_length_, assumed_output_);
  }

  std::int64_t max_tokens_;
  std::int64_t assumed_output_;
  OutputLength output_length_;
  std::int64_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const TokenBudget& config) {
  return std::make_unique<TokenBudgetPolicy>(config);
}

}  // namespace spillway::gateway
