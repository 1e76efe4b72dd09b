#include "gateway/controller/vegas.h"

#include <algorithm>
#include <cmath>

#include "gateway/controller/controller.h"
#include "sim/math.h"
#include "sim/rng.h"

namespace spillway::gateway {

namespace {

class VegasPolicy final : public ControllerPolicy {
 public:
  VegasPolicy(const Vegas& config, std::uint64_t seed)
      : config_(config), draws_(seed, sim::Stream::controller, 0) {
    draw_jitter();
  }

  double tick(const Reading& reading, double limit, sim::Time) override {
    const double latency = reading.value;
    ++ticks_;
    if (jitter_ * config_.probe_multiplier * limit <= static_cast<double>(ticks_)) {
      draw_jitter();
      ticks_ = 0;
      least_latency_ = latency;
      return limit;
    }
    if (least_latency_ == 0 || latency < least_latency_) {
      least_latency_ = latency;
      return limit;
    }
    return limit + config_.smoothing * move(reading, limit);
  }

  void change(const Controller& to) override { config_ = std::get<Vegas>(to); }

 private:
  void draw_jitter() { jitter_ = 0.5 + 0.5 * draws_.uniform(); }

  double move(const Reading& reading, double limit) const {
    const auto unit = static_cast<double>(std::max<std::int64_t>(1, sim::decimal_exponent(limit)));
    if (config_.shed_is_drop && reading.shed > 0) return -unit;
    if (2.0 * static_cast<double>(reading.max_in_flight) < limit) return 0;
    const double queue = std::ceil(limit * (1.0 - least_latency_ / reading.value));
    if (queue <= config_.threshold * unit) return config_.beta * unit;
    if (queue < config_.alpha * unit) return unit;
    return queue > config_.beta * unit ? -unit : 0;
  }

  Vegas config_;
  sim::Draws draws_;
  double jitter_ = 0;
  std::int64_t ticks_ = 0;    // since the last probe
  double least_latency_ = 0;  // 0: unknown
};

}  // namespace

std::unique_ptr<ControllerPolicy> make(const Vegas& config, std::uint64_t seed) {
  return std::make_unique<VegasPolicy>(config, seed);
}

}  // namespace spillway::gateway
