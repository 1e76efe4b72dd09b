#include "workload/lengths/lognormal.h"

#include <cmath>

#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class LognormalLength final : public LengthDistribution {
 public:
  explicit LognormalLength(const Lognormal& config) : config_(config) {}
  std::int64_t tokens(sim::Draws& draws) const override {
    return clamped_tokens(std::exp(config_.mu + config_.sigma * draws.normal()), config_.min_tokens,
                          config_.max_tokens);
  }

 private:
  Lognormal config_;
};

}  // namespace

std::unique_ptr<LengthDistribution> make(const Lognormal& config) {
  return std::make_unique<LognormalLength>(config);
}

}  // namespace spillway::workload
