#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "numerics/moments.h"

namespace spillway::numerics {

/// Distinct values in ascending order with their counts.
using ValueCounts = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// A multiset of int64 values kept as counts per distinct value (a hash table): exact mean and
/// percentiles of a large number of values with few distinct ones, such as the gaps between tokens.
/// Results do not depend on the order of the additions.
///
/// Additions wait until there are several: each is a cell somewhere in memory, which is fetched in
/// the meantime.
class WeightedSample {
 public:
  void add(std::int64_t value, std::int64_t count);
  void merge(const WeightedSample& other);

  std::int64_t count() const { return count_; }
  ValueCounts sorted() const;

 private:
  struct Cell {
    std::int64_t value = 0;
    std::int64_t count = 0;  // 0: empty
  };
  std::size_t place_of(std::int64_t value) const;
  Cell& cell_of(std::int64_t value);
  void add_now(const Cell& added);
  void grow();

  std::vector<Cell> cells_;  // open addressing; the size is a power of two
  std::size_t used_ = 0;
  std::int64_t count_ = 0;
  std::array<Cell, 16> waiting_;
  std::size_t num_waiting_ = 0;
};

/// Adds values to others.
void merge(ValueCounts& values, const ValueCounts& others);
/// Number of values.
std::int64_t count(const ValueCounts& values);
/// As for plain values.
Moments moments_of(const ValueCounts& pairs, std::span<const double> ps,
                   std::span<double> percentiles);

}  // namespace spillway::numerics
