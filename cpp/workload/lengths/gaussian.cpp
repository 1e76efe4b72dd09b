#include "workload/lengths/gaussian.h"

#include <cmath>

#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class GaussianLength final : public LengthDistribution {
 public:
  explicit GaussianLength(const Gaussian& config) : config_(config) {}
  std::int64_t tokens(sim::Draws& draws) const override { return length(draws.normal()); }
  std::int64_t quantile(double p) const override { return length(sim::normal_quantile(p)); }

 private:
  std::int64_t length(double standard) const {
    return clamped_tokens(config_.mean_tokens + config_.std_dev_tokens * standard,
                          config_.min_tokens, config_.max_tokens);
  }

  Gaussian config_;
};

}  // namespace

std::unique_ptr<LengthDistribution> make(const Gaussian& config) {
  return std::make_unique<GaussianLength>(config);
}

}  // namespace spillway::workload
