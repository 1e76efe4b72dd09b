#include "gateway/limit/prefill_busy.h"

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class PrefillBusyPolicy final : public LimitPolicy {
 public:
  explicit PrefillBusyPolicy(double threshold) : threshold_(threshold) {}

  bool is_open(const Occasion& occasion) const override {
    const signals::View& view = *occasion.view;
    for (std::size_t i = 0; i < view.size(); ++i) {
      const auto most = static_cast<double>(view.capacity(i).max_num_batched_tokens);
      const auto tokens =
          static_cast<double>(view.outstanding().awaiting(view.id(i)).uncached_tokens);
      if (tokens <= threshold_ * most) return true;
    }
    return false;
  }
  bool may_start(const signals::RequestView&, const Occasion& occasion) const override {
    return is_open(occasion);
  }
  void started(const signals::RequestView&) override {}
  void ended(const signals::RequestView&) override {}
  bool frees_at_first_token() const override { return true; }
  bool follows_routing() const override { return true; }
  void change(const Limit& to, std::span<const workload::Tenant>) override {
    threshold_ = std::get<PrefillBusy>(to).threshold;
  }

 private:
  double threshold_;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const PrefillBusy& config) {
  return std::make_unique<PrefillBusyPolicy>(config.threshold);
}

}  // namespace spillway::gateway
