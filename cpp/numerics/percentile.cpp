#include "numerics/percentile.h"

#include <algorithm>
#include <cmath>

namespace spillway::numerics {

namespace {

// Rank p/100·(n − 1), split into its whole part and the rest.
struct Rank {
  std::int64_t below;
  double fraction;
};

Rank rank_of(double p, std::int64_t n) {
  const double rank = p / 100.0 * static_cast<double>(n - 1);
  const double below = std::floor(rank);
  return {static_cast<std::int64_t>(below), rank - below};
}

// NumPy's interpolation, which is exact at both ends and monotone.
double interpolate(double a, double b, double t) {
  return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1.0 - t);
}

}  // namespace

std::vector<double> percentiles(std::span<double> values, std::span<const double> ps) {
  std::vector<double> result;
  auto sorted_until = values.begin();
  for (const double p : ps) {
    const Rank rank = rank_of(p, std::ssize(values));
    const auto lower = values.begin() + rank.below;
    if (lower >= sorted_until) std::nth_element(sorted_until, lower, values.end());
    sorted_until = std::max(sorted_until, lower);
    const double below = *lower;
    const bool is_last = lower + 1 == values.end();
    const double above = is_last ? below : *std::min_element(lower + 1, values.end());
    result.push_back(interpolate(below, above, rank.fraction));
  }
  return result;
}

void WeightedSample::add(std::int64_t value, std::int64_t count) {
  if (count == 0) return;
  count_ += count;
  if (!pairs_.empty() && pairs_.back().first == value) {
    pairs_.back().second += count;
    return;
  }
  if (pairs_.size() >= compact_at_) {
    compact();
    compact_at_ = std::max<std::size_t>(compact_at_, 2 * pairs_.size());
  }
  pairs_.emplace_back(value, count);
  is_sorted_ = false;
}

void WeightedSample::merge(const WeightedSample& other) {
  for (const auto& [value, count] : other.pairs_) add(value, count);
}

void WeightedSample::compact() {
  std::sort(pairs_.begin(), pairs_.end());
  std::size_t kept = 0;
  for (std::size_t i = 1; i < pairs_.size(); ++i) {
    if (pairs_[i].first == pairs_[kept].first) {
      pairs_[kept].second += pairs_[i].second;
    } else {
      pairs_[++kept] = pairs_[i];
    }
  }
  if (!pairs_.empty()) pairs_.resize(kept + 1);
  is_sorted_ = true;
}

const std::vector<std::pair<std::int64_t, std::int64_t>>& WeightedSample::sorted() {
  if (!is_sorted_) compact();
  return pairs_;
}

double WeightedSample::mean() const {
  double sum = 0;
  for (const auto& [value, count] : pairs_) {
    sum += static_cast<double>(value) * static_cast<double>(count);
  }
  return sum / static_cast<double>(count_);
}

double WeightedSample::std_dev() const {
  const double center = mean();
  double sum = 0;
  for (const auto& [value, count] : pairs_) {
    const double deviation = static_cast<double>(value) - center;
    sum += deviation * deviation * static_cast<double>(count);
  }
  return std::sqrt(sum / static_cast<double>(count_));
}

std::vector<double> WeightedSample::percentiles(std::span<const double> ps) {
  sorted();
  std::vector<double> result;
  std::size_t at = 0;
  std::int64_t up_to = pairs_.front().second;  // values at index < up_to are at most pairs_[at]
  for (const double p : ps) {
    const Rank rank = rank_of(p, count_);
    while (rank.below >= up_to) up_to += pairs_[++at].second;
    const double below = static_cast<double>(pairs_[at].first);
    const bool next_differs = rank.below + 1 >= up_to && at + 1 < pairs_.size();
    const double above = next_differs ? static_cast<double>(pairs_[at + 1].first) : below;
    result.push_back(interpolate(below, above, rank.fraction));
  }
  return result;
}

}  // namespace spillway::numerics
