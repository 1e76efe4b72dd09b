#pragma once

#include <cmath>
#include <cstdint>

#include "sim/rng.h"

namespace spillway::workload {

/// Contract of a length distribution: independent token counts. `tokens` draws only from `draws`,
/// which belongs to that request. `quantile` is the smallest length whose probability not to be
/// exceeded is at least `p`, 0 < p < 1.
class LengthDistribution {
 public:
  virtual ~LengthDistribution() = default;
  virtual std::int64_t tokens(sim::Draws& draws) const = 0;
  virtual std::int64_t quantile(double p) const = 0;
};

/// `x` rounded half away from zero and clamped to [min, max].
inline std::int64_t clamped_tokens(double x, std::int64_t min, std::int64_t max) {
  if (x <= static_cast<double>(min)) return min;
  if (x >= static_cast<double>(max)) return max;
  return std::llround(x);
}

}  // namespace spillway::workload
