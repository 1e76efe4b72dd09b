#include "numerics/weighted_sample.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "numerics/fibonacci_hash.h"
#include "numerics/percentile.h"

namespace spillway::numerics {

namespace {
constexpr std::size_t kFirstSize = 16;
}

WeightedSample::Cell& WeightedSample::cell_of(std::int64_t value) {
  const std::size_t mask = cells_.size() - 1;
  std::size_t at = (fibonacci_hash(value) >> 32) & mask;
  while (cells_[at].count != 0 && cells_[at].value != value) at = (at + 1) & mask;
  return cells_[at];
}

void WeightedSample::grow() {
  std::vector<Cell> old(cells_.empty() ? kFirstSize : 2 * cells_.size());
  old.swap(cells_);
  for (const Cell& cell : old) {
    if (cell.count != 0) cell_of(cell.value) = cell;
  }
}

void WeightedSample::add(std::int64_t value, std::int64_t count) {
  if (count == 0) return;
  if (2 * used_ >= cells_.size()) grow();
  count_ += count;
  Cell& cell = cell_of(value);
  if (cell.count == 0) {
    cell.value = value;
    ++used_;
  }
  cell.count += count;
}

void WeightedSample::merge(const WeightedSample& other) {
  for (const Cell& cell : other.cells_) add(cell.value, cell.count);
}

ValueCounts WeightedSample::sorted() const {
  ValueCounts pairs;
  pairs.reserve(used_);
  for (const Cell& cell : cells_) {
    if (cell.count != 0) pairs.emplace_back(cell.value, cell.count);
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

void merge(ValueCounts& values, const ValueCounts& others) {
  ValueCounts merged;
  merged.reserve(values.size() + others.size());
  std::ranges::merge(values, others, std::back_inserter(merged));
  std::size_t kept = 0;
  for (std::size_t i = 1; i < merged.size(); ++i) {
    if (merged[i].first == merged[kept].first) {
      merged[kept].second += merged[i].second;
    } else {
      merged[++kept] = merged[i];
    }
  }
  merged.resize(std::min(kept + 1, merged.size()));
  values = std::move(merged);
}

std::int64_t count(const ValueCounts& values) {
  std::int64_t sum = 0;
  for (const auto& one : values) sum += one.second;
  return sum;
}

Moments moments_of(const ValueCounts& pairs, std::span<const double> ps,
                   std::span<double> percentiles) {
  const std::int64_t size = count(pairs);
  const auto n = static_cast<double>(size);
  Moments result;
  for (const auto& [value, count] : pairs) {
    result.mean += static_cast<double>(value) * static_cast<double>(count);
  }
  result.mean /= n;
  double squares = 0;
  for (const auto& [value, count] : pairs) {
    const double deviation = static_cast<double>(value) - result.mean;
    squares += deviation * deviation * static_cast<double>(count);
  }
  result.std_dev = std::sqrt(squares / n);

  std::size_t at = 0;
  std::int64_t up_to = pairs.front().second;  // values at index < up_to are at most pairs[at]
  for (std::size_t i = 0; i < ps.size(); ++i) {
    const PercentileRank rank = percentile_rank(ps[i], size);
    while (rank.below >= up_to) up_to += pairs[++at].second;
    const auto below = static_cast<double>(pairs[at].first);
    const bool next_differs = rank.below + 1 >= up_to && at + 1 < pairs.size();
    const double above = next_differs ? static_cast<double>(pairs[at + 1].first) : below;
    percentiles[i] = interpolate(below, above, rank.fraction);
  }
  return result;
}

}  // namespace spillway::numerics
