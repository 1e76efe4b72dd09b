#include "workload/lengths/lognormal.h"

#include "sim/math.h"
#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class LognormalLength final : public LengthDistribution {
 public:
  explicit LognormalLength(const Lognormal& config) : config_(config) {}
  std::int64_t tokens(sim::Draws& draws) const override { return length(draws.normal()); }
  std::int64_t quantile(double p) const override { return length(sim::normal_quantile(p)); }

 private:
  std::int64_t length(double standard) const {
    return clamped_tokens(sim::exp(config_.mu + config_.sigma * standard), config_.min_tokens,
                          config_.max_tokens);
  }

  Lognormal config_;
};

}  // namespace

std::unique_ptr<LengthDistribution> make(const Lognormal& config) {
  return std::make_unique<LognormalLength>(config);
}

}  // namespace spillway::workload
