#include "workload/lengths/fixed.h"

#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class FixedLength final : public LengthDistribution {
 public:
  explicit FixedLength(std::int64_t tokens) : tokens_(tokens) {}
  std::int64_t tokens(sim::Draws&) const override { return tokens_; }
  std::int64_t quantile(double) const override { return tokens_; }

 private:
  std::int64_t tokens_;
};

}  // namespace

std::unique_ptr<LengthDistribution> make(const Fixed& config) {
  return std::make_unique<FixedLength>(config.tokens);
}

}  // namespace spillway::workload
