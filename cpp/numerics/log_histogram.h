#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "numerics/moments.h"

namespace spillway::numerics {

/// Counts of int64 values ≥ 0 in buckets of equal relative width: percentiles with a relative error
/// of at most 2⁻⁸ (0.4 %) in bounded memory, mean and standard deviation from exact sums, exact
/// extremes. Results do not depend on the order of the additions.
class LogHistogram {
 public:
  void add(std::int64_t value, std::int64_t count = 1);
  void merge(const LogHistogram& other);

  std::int64_t count() const { return count_; }
  /// As `moments_of` for plain values.
  Moments moments(std::span<const double> ps, std::span<double> percentiles) const;

 private:
  std::vector<std::int64_t> buckets_;  // as long as the largest value needs
  std::int64_t count_ = 0;
  std::int64_t least_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t largest_ = 0;
  __extension__ using Sum = unsigned __int128;
  Sum sum_ = 0;      // Σ v
  Sum squares_ = 0;  // Σ v² modulo 2¹²⁸, sufficient for the squares about the mean
};

inline Moments moments_of(const LogHistogram& histogram, std::span<const double> ps,
                          std::span<double> percentiles) {
  return histogram.moments(ps, percentiles);
}

}  // namespace spillway::numerics
