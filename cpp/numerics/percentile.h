#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace spillway::numerics {

/// The p-th percentiles (0 ≤ p ≤ 100, ascending) of `values` by NumPy's "linear" definition;
/// reorders `values`. Precondition: `values` is not empty.
std::vector<double> percentiles(std::span<double> values, std::span<const double> ps);

/// A multiset of int64 values kept as (value, count) pairs: exact mean and percentiles of very many
/// values of which few are distinct, such as the gaps between tokens.
class WeightedSample {
 public:
  void add(std::int64_t value, std::int64_t count);
  void merge(const WeightedSample& other);

  std::int64_t count() const { return count_; }
  /// Precondition for these: count() > 0.
  double mean() const;
  double std_dev() const;
  std::vector<double> percentiles(std::span<const double> ps);

  /// Distinct values in ascending order with their counts.
  const std::vector<std::pair<std::int64_t, std::int64_t>>& sorted();

 private:
  void compact();

  std::vector<std::pair<std::int64_t, std::int64_t>> pairs_;
  std::size_t compact_at_ = 1u << 16;
  std::int64_t count_ = 0;
  bool is_sorted_ = true;
};

}  // namespace spillway::numerics
