#include "gateway/controller/aimd.h"

#include <cmath>

#include "gateway/controller/controller.h"

namespace spillway::gateway {

namespace {

class AimdPolicy final : public ControllerPolicy {
 public:
  explicit AimdPolicy(const Aimd& config)
      : config_(config),
        upper_(config.target_s * (1.0 + config.band)),
        lower_(config.target_s * (1.0 - config.band)) {}

  void change(const Controller& to) override { *this = AimdPolicy(std::get<Aimd>(to)); }

  sim::Time settled_until(const Reading&, double) const override { return sim::kForever; }
  double tick(const Reading& reading, double limit, sim::Time) override {
    if (reading.value > upper_) {
      return config_.decrease == Decrease::factor ? std::floor(limit * config_.decrease_factor)
                                                  : limit - config_.decrease_step;
    }
    return reading.value < lower_ ? limit + config_.increase_step : limit;
  }

 private:
  Aimd config_;
  double upper_;
  double lower_;
};

}  // namespace

std::unique_ptr<ControllerPolicy> make(const Aimd& config, std::uint64_t) {
  return std::make_unique<AimdPolicy>(config);
}

}  // namespace spillway::gateway
