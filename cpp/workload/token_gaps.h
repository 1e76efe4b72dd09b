#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/fibonacci_hash.h"
#include "numerics/log_histogram.h"
#include "numerics/weighted_sample.h"
#include "sim/time.h"
#include "workload/gap_log.h"

namespace spillway::workload {

/// Gaps between tokens (ns) per group of requests: exact counts, or a histogram.
///
/// The steps of a jump give all groups the same gap, and a gap recurs soon. With few groups `row`
/// therefore finds a gap once for all of them: the counts of recent gaps stand in a small table of
/// rows, and reach the groups' samples when another gap needs their row, or by `close`. With many
/// groups each engine logs the gap of a jump once, with the requests that had it.
class TokenGaps {
 public:
  /// Whether that many groups are few.
  static constexpr bool are_few(std::size_t groups) { return groups <= 64; }

  /// Preparation for a run; `streams`: histograms.
  void resize(std::size_t groups, bool streams) {
    streams ? approximate_.resize(groups) : exact_.resize(groups);
  }

  void add(std::size_t group, sim::Time gap, std::int64_t count) {
    if (approximate_.empty()) {
      exact_[group].add(gap.ns, count);
    } else {
      approximate_[group].add(gap.ns, count);
    }
  }
  /// Counts of a gap by group, to be added to; valid until the next call. Empty for histograms.
  /// Precondition: groups are few.
  std::span<std::int64_t> row(sim::Time gap) {
    const std::size_t groups = exact_.size();
    if (groups == 0) return {};
    if (gaps_.empty()) {
      gaps_.resize(kRows);
      counts_.resize(kRows * groups);
    }
    const std::size_t at = numerics::fibonacci_hash(gap.ns) >> kShift;
    if (gaps_[at] != gap) replace(at, gap);
    return std::span(counts_).subspan(at * groups, groups);
  }
  /// Counts the sections of a log that is full; `open` as in `GapLog::drop_sections`.
  void count_sections(GapLog& log, std::int64_t open) {
    for (const GapLog::Section& section : log.sections()) {
      for (std::uint32_t i = section.begin; i < section.end; ++i) {
        const GapLog::Entry& entry = log.entries()[i];
        add(section.group, log.values()[entry.value], entry.count);
      }
    }
    log.drop_sections(open);
  }

  /// The run has ended: takes the log of an engine.
  void keep(GapLog& log) {
    approximate_.empty() ? index_.add(log) : count_sections(log, log.end());
  }
  /// The run has ended, and all logs have been taken.
  void close() {
    for (std::size_t at = 0; at < gaps_.size(); ++at) replace(at, gaps_[at]);
    if (!index_.empty()) index_.build(exact_.size());
  }

  // After a run, one of the two according to its mode:
  const std::vector<numerics::LogHistogram>& approximate() const { return approximate_; }
  /// The gaps of all requests of some groups.
  numerics::ValueCounts exact(std::span<const std::size_t> groups, GapIndex::Room& room) const {
    numerics::ValueCounts counts;
    if (groups.size() == 1) {
      counts = exact_[groups.front()].sorted();
    } else {
      numerics::WeightedSample merged;
      for (const std::size_t group : groups) merged.merge(exact_[group]);
      counts = merged.sorted();
    }
    if (!index_.empty()) numerics::merge(counts, index_.sorted(groups, room));
    return counts;
  }

 private:
  static constexpr std::size_t kRows = 256;
  static constexpr unsigned kShift = 64 - 8;

  // The row holds another gap from now on. Seldom: kept out of the loops that find rows.
  [[gnu::noinline]] void replace(std::size_t at, sim::Time next) {
    const std::span<std::int64_t> row =
        std::span(counts_).subspan(at * exact_.size(), exact_.size());
    for (std::size_t group = 0; group < row.size(); ++group) {
      exact_[group].add(gaps_[at].ns, row[group]);
    }
    std::fill(row.begin(), row.end(), 0);
    gaps_[at] = next;
  }

  std::vector<numerics::WeightedSample> exact_;
  std::vector<numerics::LogHistogram> approximate_;  // one of the two is empty
  std::vector<sim::Time> gaps_;                      // of the rows; empty before the first
  std::vector<std::int64_t> counts_;                 // row by row
  GapIndex index_;                                   // empty if there are few groups
};

}  // namespace spillway::workload
