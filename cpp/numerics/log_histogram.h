#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "numerics/weighted_sample.h"

namespace spillway::numerics {

/// Counts of int64 values ≥ 0 in buckets of equal relative width: percentiles with a relative error
/// of at most 2⁻⁸ (0.4 %) in bounded memory; mean and standard deviation as exact as the addition
/// of doubles.
class LogHistogram {
 public:
  void add(std::int64_t value, std::int64_t count = 1);
  void merge(const LogHistogram& other);

  std::int64_t count() const { return count_; }
  /// Precondition: count() > 0; `ps` ascend.
  Moments moments(std::span<const double> ps) const;

 private:
  std::vector<std::int64_t> buckets_;  // as long as the largest value needs
  std::int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // Σ (value − mean)²
};

}  // namespace spillway::numerics
