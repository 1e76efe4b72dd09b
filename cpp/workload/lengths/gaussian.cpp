#include "workload/lengths/gaussian.h"

#include <cmath>

#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class GaussianLength final : public LengthDistribution {
 public:
  explicit GaussianLength(const Gaussian& config) : config_(config) {}
  std::int64_t tokens(sim::Draws& draws) const override {
    return clamped_tokens(config_.mean_tokens + config_.std_dev_tokens * draws.normal(),
                          config_.min_tokens, config_.max_tokens);
  }

 private:
  Gaussian config_;
};

}  // namespace

std::unique_ptr<LengthDistribution> make(const Gaussian& config) {
  return std::make_unique<GaussianLength>(config);
}

}  // namespace spillway::workload
