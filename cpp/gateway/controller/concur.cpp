#include "gateway/controller/concur.h"

#include <algorithm>
#include <cmath>

#include "gateway/controller/controller.h"

namespace spillway::gateway {

namespace {

class ConcurPolicy final : public ControllerPolicy {
 public:
  explicit ConcurPolicy(const Concur& config) : config_(config) {}

  bool needs_value() const override { return false; }

  double tick(const Reading& reading, double limit, sim::Time) override {
    best_hit_rate_ = std::max(best_hit_rate_, reading.hit_rate);
    if (reading.kv_utilization < config_.high_kv_utilization) return limit + config_.increase_step;
    if (!(reading.hit_rate < best_hit_rate_ - config_.hit_rate_fall)) return limit;
    best_hit_rate_ = reading.hit_rate;
    return std::floor(limit * config_.decrease_factor);
  }

  // The best hit rate is that of the reading or an earlier one.
  sim::Time settled_until(const Reading&, double) const override { return sim::kForever; }
  void change(const Controller& to) override { config_ = std::get<Concur>(to); }

 private:
  Concur config_;
  double best_hit_rate_ = 0;  // since the last cut
};

}  // namespace

std::unique_ptr<ControllerPolicy> make(const Concur& config, std::uint64_t) {
  return std::make_unique<ConcurPolicy>(config);
}

}  // namespace spillway::gateway
