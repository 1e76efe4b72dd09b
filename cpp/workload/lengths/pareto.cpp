#include "workload/lengths/pareto.h"

#include "sim/math.h"
#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class ParetoLength final : public LengthDistribution {
 public:
  explicit ParetoLength(const Pareto& config)
      : config_(config),
        within_(-sim::expm1(config.alpha * sim::log(static_cast<double>(config.min_tokens) /
                                                    static_cast<double>(config.max_tokens)))) {}
  std::int64_t tokens(sim::Draws& draws) const override { return quantile(draws.uniform()); }
  std::int64_t quantile(double p) const override {
    const double length = static_cast<double>(config_.min_tokens) *
                          sim::exp(-sim::log1p(-p * within_) / config_.alpha);
    return clamped_tokens(length, config_.min_tokens, config_.max_tokens);
  }

 private:
  Pareto config_;
  double within_;  // probability of the untruncated law below max_tokens
};

}  // namespace

std::unique_ptr<LengthDistribution> make(const Pareto& config) {
  return std::make_unique<ParetoLength>(config);
}

}  // namespace spillway::workload
