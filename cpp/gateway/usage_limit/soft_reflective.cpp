#include "gateway/usage_limit/soft_reflective.h"

#include <algorithm>
#include <cmath>

#include "gateway/usage_limit/usage_limit.h"

namespace spillway::gateway {

namespace {

class SoftReflectivePolicy final : public UsageLimitPolicy {
 public:
  bool follows_saturation() const override { return true; }

  void set_ceilings(double saturation, std::span<double> ceilings) override {
    const auto last = static_cast<double>(ceilings.size() - 1);
    for (std::size_t i = 0; i < ceilings.size(); ++i) {
      ceilings[i] = i == 0 ? 1 : 1 - static_cast<double>(i) * saturation / last;
    }
    // Ceilings fall from band to band.
    if (saturation >= 1 || saturation < ceilings.back()) return;
    ++calls_;
    // A band can only be past its ceiling if the saturation is at least one half.
    const double period = std::max(std::round(saturation / (1 - saturation)), 1.0);
    if (std::fmod(static_cast<double>(calls_), period) == 0) {
      std::fill(ceilings.begin(), ceilings.end(), 1.0);
    }
  }

 private:
  std::int64_t calls_ = 0;  // drains with a band past its ceiling
};

}  // namespace

std::unique_ptr<UsageLimitPolicy> make(const SoftReflective&, std::span<const std::int64_t>) {
  return std::make_unique<SoftReflectivePolicy>();
}

}  // namespace spillway::gateway
