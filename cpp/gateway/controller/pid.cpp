#include "gateway/controller/pid.h"

#include <algorithm>

#include "gateway/controller/controller.h"
#include "sim/math.h"

namespace spillway::gateway {

namespace {

/// A signal of 0 has no logarithm.
constexpr double kLeastSignal = 1e-9;

class PidPolicy final : public ControllerPolicy {
 public:
  explicit PidPolicy(const Pid& config) : config_(config) {}

  double tick(const Reading& reading, double limit, sim::Time) override {
    const double period_s = reading.since_last_tick_s;
    const double error = sim::log(config_.target_s / std::max(reading.value, kLeastSignal));
    if (first_) {
      first_ = false;
      error_1_ = error_2_ = error;
      wanted_ = limit;
    }
    const bool was_held_back = error > 0 ? wanted_ > limit : wanted_ < limit;
    const bool rests = was_held_back || !reading.has_demand;
    const double change = config_.kp * (error - error_1_) +
                          (rests ? 0.0 : config_.ki_per_s * period_s * error) +
                          config_.kd_s * (error - 2.0 * error_1_ + error_2_) / period_s;
    error_2_ = error_1_;
    error_1_ = error;
    wanted_ = limit * sim::exp(std::clamp(change, -config_.largest_cut, config_.largest_rise));
    return wanted_;
  }

  sim::Time settled_until(const Reading& reading, double limit) const override {
    const bool is_steady = !first_ && error_1_ == error_2_ && wanted_ == limit;
    return is_steady && !reading.has_demand ? sim::kForever : sim::Time{0};
  }
  void change(const Controller& to) override { config_ = std::get<Pid>(to); }

 private:
  Pid config_;
  bool first_ = true;
  double error_1_ = 0;  // at the last tick
  double error_2_ = 0;  // at the tick before
  double wanted_ = 0;   // at the last tick
};

}  // namespace

std::unique_ptr<ControllerPolicy> make(const Pid& config, std::uint64_t) {
  return std::make_unique<PidPolicy>(config);
}

}  // namespace spillway::gateway
