#include "numerics/log_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "numerics/percentile.h"

namespace spillway::numerics {

namespace {

// Values below 2^kBits have a bucket each; every further octave is cut into 2^(kBits − 1) buckets.
constexpr unsigned kBits = 8;
constexpr std::uint64_t kHalf = 1u << (kBits - 1);

std::size_t bucket_of(std::int64_t value) {
  const auto v = static_cast<std::uint64_t>(value);
  const auto width = static_cast<unsigned>(std::bit_width(v));
  const unsigned shift = width > kBits ? width - kBits : 0;
  return static_cast<std::size_t>(shift * kHalf + (v >> shift));
}

double middle_of(std::size_t bucket) {
  const std::size_t shift = bucket < 2 * kHalf ? 0 : bucket / kHalf - 1;
  const double low =
      std::ldexp(static_cast<double>(bucket - shift * kHalf), static_cast<int>(shift));
  return low + 0.5 * (std::ldexp(1.0, static_cast<int>(shift)) - 1.0);
}

}  // namespace

void LogHistogram::add(std::int64_t value, std::int64_t count) {
  if (count == 0) return;
  const std::size_t bucket = bucket_of(value);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1, 0);
  buckets_[bucket] += count;
  count_ += count;
  least_ = std::min(least_, value);
  largest_ = std::max(largest_, value);
  const Sum v = static_cast<std::uint64_t>(value);
  const Sum weight = static_cast<std::uint64_t>(count);
  sum_ += v * weight;
  squares_ += v * v * weight;
}

void LogHistogram::merge(const LogHistogram& other) {
  if (other.buckets_.size() > buckets_.size()) buckets_.resize(other.buckets_.size(), 0);
  for (std::size_t i = 0; i < other.buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  least_ = std::min(least_, other.least_);
  largest_ = std::max(largest_, other.largest_);
  sum_ += other.sum_;
  squares_ += other.squares_;
}

Moments LogHistogram::moments(std::span<const double> ps, std::span<double> percentiles) const {
  const Sum n = static_cast<std::uint64_t>(count_);
  const Sum center = sum_ / n;
  const auto rest = static_cast<double>(sum_ % n) / static_cast<double>(count_);
  // Σ (v − center)²: overflows cancel.
  const Sum about_center = squares_ - 2 * center * sum_ + n * center * center;
  const double variance =
      static_cast<double>(about_center) / static_cast<double>(count_) - rest * rest;
  std::size_t at = 0;
  std::int64_t up_to = buckets_.front();  // values at index < up_to lie in bucket `at` or below
  for (std::size_t i = 0; i < ps.size(); ++i) {
    const PercentileRank rank = percentile_rank(ps[i], count_);
    while (rank.below >= up_to) up_to += buckets_[++at];
    double above = middle_of(at);
    if (rank.below + 1 >= up_to && up_to < count_) {
      std::size_t next = at + 1;
      while (buckets_[next] == 0) ++next;
      above = middle_of(next);
    }
    percentiles[i] = interpolate(middle_of(at), above, rank.fraction);
  }
  return {static_cast<double>(center) + rest, std::sqrt(std::max(variance, 0.0)),
          static_cast<double>(least_), static_cast<double>(largest_)};
}

}  // namespace spillway::numerics
