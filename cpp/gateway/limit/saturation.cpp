#include "gateway/limit/saturation.h"

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class SaturationPolicy final : public LimitPolicy {
 public:
  explicit SaturationPolicy(const Saturation& config) : config_(config) {}
  bool is_open(const Occasion& occasion) const override {
    return signals::saturation(config_, *occasion.view, in_flight_) < occasion.ceiling;
  }
  bool may_start(const signals::RequestView&, const Occasion& occasion) const override {
    return is_open(occasion);
  }
  std::optional<double> saturation(const Occasion& occasion) const override {
    return signals::saturation(config_, *occasion.view, in_flight_);
  }
  bool follows_signals() const override {
    return config_.detector == signals::Detector::utilization;
  }
  void change(const Limit& to, std::span<const workload::Tenant>) override {
    config_ = std::get<Saturation>(to);
  }
  void started(const signals::RequestView&) override { ++in_flight_; }
  void ended(const signals::RequestView&) override { --in_flight_; }

 private:
  Saturation config_;
  std::int64_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const Saturation& config) {
  return std::make_unique<SaturationPolicy>(config);
}

}  // namespace spillway::gateway
