#include "workload/lengths/uniform.h"

#include <algorithm>

#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class UniformLength final : public LengthDistribution {
 public:
  explicit UniformLength(const Uniform& config) : config_(config) {}
  std::int64_t tokens(sim::Draws& draws) const override {
    const auto values = static_cast<std::uint64_t>(config_.max_tokens - config_.min_tokens + 1);
    return config_.min_tokens + static_cast<std::int64_t>(draws.below(values));
  }
  std::int64_t quantile(double p) const override {
    const auto values = static_cast<double>(config_.max_tokens - config_.min_tokens + 1);
    return std::min(config_.min_tokens + static_cast<std::int64_t>(p * values), config_.max_tokens);
  }

 private:
  Uniform config_;
};

}  // namespace

std::unique_ptr<LengthDistribution> make(const Uniform& config) {
  return std::make_unique<UniformLength>(config);
}

}  // namespace spillway::workload
