#include "gateway/controller/mimd.h"

#include "gateway/controller/controller.h"

namespace spillway::gateway {

namespace {

class MimdPolicy final : public ControllerPolicy {
 public:
  explicit MimdPolicy(const Mimd& config) : config_(config) {}

  sim::Time settled_until(const Reading&, double) const override { return sim::kForever; }
  double tick(const Reading& reading, double limit, sim::Time) override {
    if (reading.value > config_.target_s * (1.0 + config_.band)) {
      return limit * (1.0 - config_.decrease_ratio);
    }
    if (reading.value < config_.target_s * (1.0 - config_.band)) {
      return limit * (1.0 + config_.increase_ratio);
    }
    return limit;
  }

  void change(const Controller& to) override { config_ = std::get<Mimd>(to); }

 private:
  Mimd config_;
};

}  // namespace

std::unique_ptr<ControllerPolicy> make(const Mimd& config, std::uint64_t) {
  return std::make_unique<MimdPolicy>(config);
}

}  // namespace spillway::gateway
