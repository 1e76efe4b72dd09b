#include "gateway/limit/saturation.h"

#include <algorithm>

namespace spillway::gateway {

namespace {

class SaturationPolicy final : public LimitPolicy {
 public:
  explicit SaturationPolicy(const Saturation& config) : config_(config) {}
  bool is_open(const Occasion& occasion) const override {
    return saturation(*occasion.view) < occasion.ceiling;
  }
  bool may_start(const signals::RequestView&, const Occasion& occasion) const override {
    return is_open(occasion);
  }
  void started(const signals::RequestView&) override { ++in_flight_; }
  void ended(const signals::RequestView&) override { --in_flight_; }

 private:
  double saturation(const signals::View& view) const {
    const auto instances = static_cast<double>(view.size());
    if (config_.detector == Detector::concurrency) {
      return static_cast<double>(in_flight_) / (config_.max_concurrency * instances);
    }
    double sum = 0;
    for (std::size_t i = 0; i < view.size(); ++i) {
      if (view.is_stale(i)) {
        sum += 1;
        continue;
      }
      const signals::InstanceSignal seen = view.instance(i);
      sum += std::max(static_cast<double>(seen.waiting) / config_.queue_depth_threshold,
                      seen.kv_utilization / config_.kv_utilization_threshold);
    }
    return sum / instances;
  }

  Saturation config_;
  std::int64_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const Saturation& config) {
  return std::make_unique<SaturationPolicy>(config);
}

}  // namespace spillway::gateway
