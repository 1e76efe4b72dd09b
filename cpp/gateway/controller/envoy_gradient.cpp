#include "gateway/controller/envoy_gradient.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gateway/controller/controller.h"
#include "numerics/percentile.h"
#include "sim/rng.h"

namespace spillway::gateway {

namespace {

constexpr int kTicksAtMinimum = 5;

class EnvoyGradientPolicy final : public ControllerPolicy {
 public:
  EnvoyGradientPolicy(const EnvoyGradient& config, std::uint64_t seed)
      : config_(config),
        draws_(seed, sim::Stream::controller, 0),
        least_latency_(config.fixed_min_rtt_s) {}

  bool needs_value() const override { return false; }

  void sample(double value, sim::Time dispatched, sim::Time now) override {
    if (dispatched < window_start_) return;
    samples_.push_back(value);
    if (is_measuring_ && std::ssize(samples_) >= config_.request_count) {
      least_latency_ = take_samples();
      is_measuring_ = false;
      is_to_restore_ = true;
      next_window_ =
          now + sim::from_seconds(config_.interval_s * (1.0 + config_.jitter * draws_.uniform()));
    }
  }

  double tick(const Reading&, double limit, sim::Time now) override {
    if (is_to_restore_) {
      is_to_restore_ = false;
      return limit_before_;
    }
    if (config_.fixed_min_rtt_s == 0 && !is_measuring_ && now >= next_window_) {
      is_measuring_ = true;
      window_start_ = now;
      limit_before_ = limit;
      ticks_at_minimum_ = 0;
      samples_.clear();
    }
    if (is_measuring_) return config_.probe_concurrency.value_or(config_.min_concurrency);
    if (samples_.empty()) return limit;
    const double wanted = next_limit(take_samples(), limit);
    const bool stays = limit <= config_.min_concurrency && wanted <= config_.min_concurrency;
    ticks_at_minimum_ = stays ? ticks_at_minimum_ + 1 : 0;
    if (ticks_at_minimum_ >= kTicksAtMinimum) next_window_ = now;
    return wanted;
  }

  sim::Time settled_until(const Reading&, double) const override {
    if (is_to_restore_) return sim::Time{0};
    if (is_measuring_) return sim::kForever;
    if (!samples_.empty()) return sim::Time{0};
    return config_.fixed_min_rtt_s == 0 ? next_window_ : sim::kForever;
  }
  void change(const Controller& to) override { config_ = std::get<EnvoyGradient>(to); }

 private:
  double take_samples() {
    const double latency = numerics::quantile(samples_, config_.percentile / 100.0);
    samples_.clear();
    return latency;
  }

  double next_limit(double latency, double limit) const {
    if (!(latency > 0)) return limit;
    const double gradient = std::clamp(least_latency_ * (1.0 + config_.buffer) / latency, 0.5, 2.0);
    const double scaled = limit * gradient;
    return std::max(config_.min_concurrency, std::floor(scaled + std::sqrt(scaled)));
  }

  EnvoyGradient config_;
  sim::Draws draws_;
  double least_latency_;
  std::vector<double> samples_;  // since the last tick or, while measuring, since its start
  bool is_measuring_ = false;
  bool is_to_restore_ = false;  // a measurement has ended since the last tick
  double limit_before_ = 0;     // the measurement
  sim::Time window_start_{0};   // of the last measurement
  sim::Time next_window_{0};    // start of the next measurement
  int ticks_at_minimum_ = 0;
};

}  // namespace

std::unique_ptr<ControllerPolicy> make(const EnvoyGradient& config, std::uint64_t seed) {
  return std::make_unique<EnvoyGradientPolicy>(config, seed);
}

}  // namespace spillway::gateway
