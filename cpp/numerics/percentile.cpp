#include "numerics/percentile.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace spillway::numerics {

namespace {

/// Numbers of values from which counting them into few, and into many buckets is faster.
constexpr std::size_t kWorthCounting = 256;
constexpr std::size_t kWorthManyBuckets = 2048;
/// Positive values that are smaller than the largest by more than this share a bucket: a zero is
/// infinitely many octaves away from any other value.
constexpr double kReach = 0x1p16;

/// An integer key with the order of the doubles. Equal steps of it are equal steps of the value
/// within an octave and of its logarithm across octaves.
std::uint64_t order_key(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

/// Finds order statistics of many values by sorting only the buckets that contain them.
template <int bucket_bits>
class BucketSelection {
 public:
  BucketSelection(std::span<double> values, double least, double largest)
      : values_(values),
        least_(order_key(std::max(least, largest > 0 ? largest / kReach : least))),
        shift_(std::max(static_cast<int>(std::bit_width(order_key(largest) - least_)) - bucket_bits,
                        0)),
        buckets_(std::make_unique_for_overwrite<std::uint16_t[]>(values.size())) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      buckets_[i] = bucket_of(values[i]);
      ++size_[buckets_[i]];
    }
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < kNumBuckets; ++i) {
      begin_[i] = begin;
      begin += size_[i];
    }
  }

  /// Marks the bucket of a rank as wanted.
  void want(std::int64_t rank) {
    const std::size_t bucket = bucket_at(rank);
    if (!wanted_[bucket]) wanted_buckets_.push_back(bucket);
    wanted_[bucket] = true;
  }

  /// Moves the wanted buckets' values to the front and sorts them.
  void sort_wanted() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[kept] = values_[i];
      kept += wanted_[buckets_[i]] ? 1 : 0;
    }
    std::sort(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(kept));
    std::sort(wanted_buckets_.begin(), wanted_buckets_.end());
    std::int64_t place = 0;
    for (const std::size_t bucket : wanted_buckets_) {
      place_[bucket] = place;
      place += size_[bucket];
    }
  }

  double at(std::int64_t rank) const {
    const std::size_t bucket = bucket_at(rank);
    return values_[static_cast<std::size_t>(place_[bucket] + rank - begin_[bucket])];
  }

 private:
  static constexpr std::size_t kNumBuckets = std::size_t{1} << bucket_bits;

  std::uint16_t bucket_of(double value) const {
    return static_cast<std::uint16_t>((std::max(order_key(value), least_) - least_) >> shift_);
  }
  std::size_t bucket_at(std::int64_t rank) const {
    return static_cast<std::size_t>(std::upper_bound(begin_.begin(), begin_.end(), rank) -
                                    begin_.begin()) -
           1;
  }

  std::span<double> values_;
  std::uint64_t least_;
  int shift_;
  std::unique_ptr<std::uint16_t[]> buckets_;  // by value, as long as the values keep their places
  std::array<std::uint32_t, kNumBuckets> size_{};  // half as much to clear as with 64 bits
  std::array<std::int64_t, kNumBuckets> begin_;
  std::array<std::int64_t, kNumBuckets> place_;  // of wanted ones, once they are sorted
  std::vector<std::size_t> wanted_buckets_;
  std::array<bool, kNumBuckets> wanted_{};
};

}  // namespace

PercentileRank percentile_rank(double p, std::int64_t n) {
  const double rank = p / 100.0 * static_cast<double>(n - 1);
  const double below = std::floor(rank);
  return {static_cast<std::int64_t>(below), rank - below};
}

void find_percentiles(std::span<double> values, double least, double largest,
                      std::span<const double> ps, std::span<double> percentiles) {
  const std::int64_t n = std::ssize(values);
  const auto interpolate_all = [&](const auto& at) {
    for (std::size_t i = 0; i < ps.size(); ++i) {
      const PercentileRank rank = percentile_rank(ps[i], n);
      percentiles[i] =
          interpolate(at(rank.below), at(std::min(rank.below + 1, n - 1)), rank.fraction);
    }
  };
  if (least == largest) return std::fill(percentiles.begin(), percentiles.end(), least);
  if (values.size() < kWorthCounting) {
    std::sort(values.begin(), values.end());
    return interpolate_all(
        [&](std::int64_t rank) { return values[static_cast<std::size_t>(rank)]; });
  }
  const auto count = [&](auto selection) {
    for (const double p : ps) {
      const PercentileRank rank = percentile_rank(p, n);
      selection.want(rank.below);
      selection.want(std::min(rank.below + 1, n - 1));
    }
    selection.sort_wanted();
    interpolate_all([&](std::int64_t rank) { return selection.at(rank); });
  };
  if (values.size() < kWorthManyBuckets) {
    count(BucketSelection<10>(values, least, largest));
  } else {
    count(BucketSelection<12>(values, least, largest));
  }
}

std::vector<double> percentiles(std::span<double> values, std::span<const double> ps) {
  const auto [least, largest] = std::minmax_element(values.begin(), values.end());
  std::vector<double> result(ps.size());
  find_percentiles(values, *least, *largest, ps, result);
  return result;
}

double quantile(std::span<double> values, double q) {
  const double rank = q * static_cast<double>(values.size() - 1);
  const double below = std::floor(rank);
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(values.begin(), place, values.end());
  if (place + 1 == values.end()) return *place;
  return interpolate(*place, *std::min_element(place + 1, values.end()), rank - below);
}

}  // namespace spillway::numerics
