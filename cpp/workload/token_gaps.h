#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/log_histogram.h"
#include "numerics/weighted_sample.h"
#include "sim/time.h"

namespace spillway::workload {

/// Gaps between tokens (ns) per group of requests: exact counts, or a histogram.
///
/// The steps of a jump give all groups the same gap, and a gap recurs soon. With few groups `row`
/// therefore finds a gap once for all of them: the counts of recent gaps stand in a small table of
/// rows, and reach the groups' samples when another gap needs their row, or by `flush`.
struct TokenGaps {
  std::vector<numerics::WeightedSample> exact;
  std::vector<numerics::LogHistogram> approximate;  ///< one of the two is empty

  void add(std::size_t group, sim::Time gap, std::int64_t count) {
    if (approximate.empty()) {
      exact[group].add(gap.ns, count);
    } else {
      approximate[group].add(gap.ns, count);
    }
  }
  /// Counts of a gap by group, to be added to; valid until the next call. Empty if there are no
  /// rows: too many groups, or histograms.
  std::span<std::int64_t> row(sim::Time gap) {
    const std::size_t groups = exact.size();
    if (groups == 0 || groups > kMostGroups) return {};
    if (gaps_.empty()) {
      gaps_.resize(kRows);
      counts_.resize(kRows * groups);
    }
    // Fibonacci hashing: the high bits of the product are well mixed.
    const std::size_t at = static_cast<std::uint64_t>(gap.ns) * 0x9E3779B97F4A7C15u >> kShift;
    if (gaps_[at] != gap) flush(at, gap);
    return std::span(counts_).subspan(at * groups, groups);
  }
  /// Adds the rows to the samples. To be called before `exact` is read.
  void flush() {
    for (std::size_t at = 0; at < gaps_.size(); ++at) flush(at, gaps_[at]);
  }

 private:
  static constexpr std::size_t kMostGroups = 16;
  static constexpr std::size_t kRows = 256;
  static constexpr unsigned kShift = 64 - 8;

  // The row holds another gap from now on.
  void flush(std::size_t at, sim::Time next) {
    const std::span<std::int64_t> row = std::span(counts_).subspan(at * exact.size(), exact.size());
    for (std::size_t group = 0; group < row.size(); ++group) {
      exact[group].add(gaps_[at].ns, row[group]);
    }
    std::fill(row.begin(), row.end(), 0);
    gaps_[at] = next;
  }

  std::vector<sim::Time> gaps_;       // of the rows; empty before the first
  std::vector<std::int64_t> counts_;  // row by row
};

}  // namespace spillway::workload
