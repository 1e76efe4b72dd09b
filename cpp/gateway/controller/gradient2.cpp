#include "gateway/controller/gradient2.h"

#include <algorithm>

#include "gateway/controller/controller.h"

namespace spillway::gateway {

namespace {

class Gradient2Policy final : public ControllerPolicy {
 public:
  explicit Gradient2Policy(const Gradient2& config) : config_(config) {}

  double tick(const Reading& reading, double limit, sim::Time) override {
    if (!(reading.value > 0)) return limit;
    learn(reading.value);
    const double ratio = mean_ / reading.value;
    if (ratio > config_.recovery_ratio) mean_ *= config_.recovery_factor;
    if (static_cast<double>(reading.max_in_flight) < limit / 2.0) return limit;
    const double gradient =
        std::clamp(config_.rtt_tolerance * ratio, config_.smallest_gradient, 1.0);
    return limit * (1.0 - config_.smoothing) +
           (limit * gradient + config_.queue_size) * config_.smoothing;
  }

  sim::Time settled_until(const Reading& reading, double) const override {
    return reading.value > 0 ? sim::Time{0} : sim::kForever;
  }
  void change(const Controller& to) override { config_ = std::get<Gradient2>(to); }

 private:
  void learn(double latency) {
    if (ticks_ < config_.warm_up) {
      sum_ += latency;
      mean_ = sum_ / static_cast<double>(++ticks_);
    } else {
      const double weight = 2.0 / static_cast<double>(config_.long_window + 1);
      mean_ = mean_ * (1.0 - weight) + latency * weight;
    }
  }

  Gradient2 config_;
  std::int64_t ticks_ = 0;  // counted up to the warm-up
  double sum_ = 0;
  double mean_ = 0;
};

}  // namespace

std::unique_ptr<ControllerPolicy> make(const Gradient2& config, std::uint64_t) {
  return std::make_unique<Gradient2Policy>(config);
}

}  // namespace spillway::gateway
