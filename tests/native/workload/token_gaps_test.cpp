// Gaps between tokens by group: counted a jump at a time, in rows, as one by one.
#include "workload/token_gaps.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "check.h"
#include "sim/rng.h"
#include "sim/time.h"

using spillway::sim::Draws;
using spillway::sim::Stream;
using spillway::sim::Time;
using spillway::workload::TokenGaps;

namespace {

void rows_count_like_single_gaps() {
  std::int64_t in_rows = 0;
  for (std::uint64_t round = 0; round < 60; ++round) {
    Draws draws(round, Stream::router, 0);
    const std::size_t groups = 1 + draws.below(20);
    const std::uint64_t distinct = 1 + draws.below(2000);  // more than there are rows
    TokenGaps gaps;
    gaps.exact.resize(groups);
    std::map<std::size_t, std::map<std::int64_t, std::int64_t>> expected;
    for (int jump = 0; jump < 3000; ++jump) {
      const Time gap{static_cast<std::int64_t>(draws.below(distinct) * 1013)};
      const std::span<std::int64_t> row = gaps.row(gap);
      in_rows += row.empty() ? 0 : 1;
      for (std::uint64_t i = draws.below(4); i > 0; --i) {
        const std::size_t group = draws.below(groups);
        const auto count = static_cast<std::int64_t>(1 + draws.below(50));
        row.empty() ? gaps.add(group, gap, count) : void(row[group] += count);
        expected[group][gap.ns] += count;
      }
      if (draws.below(1000) == 0) gaps.flush();
    }
    gaps.flush();
    for (std::size_t group = 0; group < groups; ++group) {
      std::map<std::int64_t, std::int64_t> counted;
      for (const auto& [gap, count] : gaps.exact[group].sorted()) counted[gap] = count;
      check(counted == expected[group], "the gaps of a group");
    }
  }
  check(in_rows > 50'000 && in_rows < 60 * 3000, "with rows and without");
}

void histograms_have_no_rows() {
  TokenGaps gaps;
  gaps.approximate.resize(2);
  check(gaps.row(Time{5}).empty(), "no row");
  gaps.add(1, Time{5}, 3);
  gaps.flush();
  check(gaps.approximate[1].count() == 3, "counted at once");
}

}  // namespace

CASES(rows_count_like_single_gaps, histograms_have_no_rows);
