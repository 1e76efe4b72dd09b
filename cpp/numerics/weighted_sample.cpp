#include "numerics/weighted_sample.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "numerics/fibonacci_hash.h"
#include "numerics/percentile.h"

namespace spillway::numerics {

namespace {
constexpr std::size_t kFirstSize = 16;

// Of ascending values.
void unite_equal(ValueCounts& values) {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i].first == values[kept].first) {
      values[kept].second += values[i].second;
    } else {
      values[++kept] = values[i];
    }
  }
  values.resize(std::min(kept + 1, values.size()));
}

}  // namespace

// Where the search for its cell begins. Precondition: there are cells.
std::size_t WeightedSample::place_of(std::int64_t value) const {
  return (fibonacci_hash(value) >> 32) & (cells_.size() - 1);
}

WeightedSample::Cell& WeightedSample::cell_of(std::int64_t value) {
  const std::size_t mask = cells_.size() - 1;
  std::size_t at = place_of(value);
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
  count_ += count;
  if (!cells_.empty()) __builtin_prefetch(&cells_[place_of(value)], 1);
  waiting_[num_waiting_++] = {value, count};
  if (num_waiting_ < waiting_.size()) return;
  for (const Cell& cell : waiting_) add_now(cell);
  num_waiting_ = 0;
}

void WeightedSample::add_now(const Cell& added) {
  if (2 * used_ >= cells_.size()) grow();
  Cell& cell = cell_of(added.value);
  if (cell.count == 0) {
    cell.value = added.value;
    ++used_;
  }
  cell.count += added.count;
}

void WeightedSample::merge(const WeightedSample& other) {
  for (const Cell& cell : other.cells_) add(cell.value, cell.count);
  for (std::size_t i = 0; i < other.num_waiting_; ++i) {
    add(other.waiting_[i].value, other.waiting_[i].count);
  }
}

ValueCounts WeightedSample::sorted() const {
  ValueCounts pairs;
  pairs.reserve(used_ + num_waiting_);
  for (const Cell& cell : cells_) {
    if (cell.count != 0) pairs.emplace_back(cell.value, cell.count);
  }
  for (std::size_t i = 0; i < num_waiting_; ++i) {
    pairs.emplace_back(waiting_[i].value, waiting_[i].count);
  }
  std::sort(pairs.begin(), pairs.end());
  unite_equal(pairs);
  return pairs;
}

void merge(ValueCounts& values, const ValueCounts& others) {
  ValueCounts merged;
  merged.reserve(values.size() + others.size());
  std::ranges::merge(values, others, std::back_inserter(merged));
  unite_equal(merged);
  values = std::move(merged);
}

std::int64_t count(const ValueCounts& values) {
  std::int64_t sum = 0;
  for (const auto& entry : values) sum += entry.second;
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
  result.least = static_cast<double>(pairs.front().first);
  result.largest = static_cast<double>(pairs.back().first);

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
