#include "instance/latency/jittered.h"

#include <cmath>

#include "instance/latency/latency.h"
#include "sim/math.h"
#include "sim/rng.h"

namespace spillway::instance {

namespace {

class JitteredModel final : public LatencyModel {
 public:
  JitteredModel(const Jittered& config, std::uint64_t seed, sim::InstanceId id)
      : mean_(make(config.mean, seed, id)),
        sigma_(std::sqrt(sim::log1p(config.cv * config.cv))),
        seed_(seed),
        id_(id) {}

  LatencyBasis basis() const override { return LatencyBasis::step; }
  double step_us(const StepLoad& load) const override {
    sim::Draws draws(seed_, sim::Stream::step_durations, static_cast<std::uint64_t>(load.ordinal),
                     id_.value);
    return mean_->step_us(load) * sim::exp(sigma_ * draws.normal() - 0.5 * sigma_ * sigma_);
  }
  double entry_us(std::int64_t input_tokens) const override {
    return mean_->entry_us(input_tokens);
  }
  double output_us() const override { return mean_->output_us(); }

 private:
  std::unique_ptr<LatencyModel> mean_;
  double sigma_;
  std::uint64_t seed_;
  sim::InstanceId id_;
};

}  // namespace

std::unique_ptr<LatencyModel> make(const Jittered& config, std::uint64_t seed, sim::InstanceId id) {
  return std::make_unique<JitteredModel>(config, seed, id);
}

}  // namespace spillway::instance
