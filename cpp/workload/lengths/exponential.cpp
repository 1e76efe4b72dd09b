#include "workload/lengths/exponential.h"

#include "sim/math.h"
#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class ExponentialLength final : public LengthDistribution {
 public:
  explicit ExponentialLength(const Exponential& config) : config_(config) {}
  std::int64_t tokens(sim::Draws& draws) const override { return length(draws.exponential()); }
  std::int64_t quantile(double p) const override { return length(-sim::log1p(-p)); }

 private:
  std::int64_t length(double standard) const {
    return clamped_tokens(config_.mean_tokens * standard, config_.min_tokens, config_.max_tokens);
  }

  Exponential config_;
};

}  // namespace

std::unique_ptr<LengthDistribution> make(const Exponential& config) {
  return std::make_unique<ExponentialLength>(config);
}

}  // namespace spillway::workload
