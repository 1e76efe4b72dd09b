// Gaps between tokens by group: counted by jumps, in rows or in logs, as one by one.
#include "workload/token_gaps.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "check.h"
#include "numerics/weighted_sample.h"
#include "sim/rng.h"
#include "sim/time.h"

using spillway::numerics::ValueCounts;
using spillway::sim::Draws;
using spillway::sim::Stream;
using spillway::sim::Time;
using spillway::workload::GapIndex;
using spillway::workload::GapLog;
using spillway::workload::TokenGaps;

namespace {

using Counts = std::map<std::int64_t, std::int64_t>;

ValueCounts list(const Counts& counts) { return {counts.begin(), counts.end()}; }

ValueCounts of_group(const TokenGaps& gaps, std::size_t group) {
  GapIndex::Room room;
  return gaps.exact({&group, 1}, room);
}

void rows_count_like_single_gaps() {
  for (std::uint64_t round = 0; round < 60; ++round) {
    Draws draws(round, Stream::router, 0);
    const std::size_t groups = 1 + draws.below(64);
    check(TokenGaps::are_few(groups), "rows");
    const std::uint64_t distinct = 1 + draws.below(2000);  // more than there are rows
    TokenGaps gaps;
    gaps.resize(groups, false);
    std::map<std::size_t, Counts> expected;
    for (int jump = 0; jump < 3000; ++jump) {
      const Time gap{static_cast<std::int64_t>(draws.below(distinct) * 1013)};
      const std::span<std::int64_t> row = gaps.row(gap);
      for (std::uint64_t i = draws.below(4); i > 0; --i) {
        const std::size_t group = draws.below(groups);
        const auto count = static_cast<std::int64_t>(1 + draws.below(50));
        row[group] += count;
        expected[group][gap.ns] += count;
      }
      if (draws.below(1000) == 0) gaps.close();
    }
    gaps.close();
    for (std::size_t group = 0; group < groups; ++group) {
      check(of_group(gaps, group) == list(expected[group]), "the gaps of a group");
    }
  }
}

// An engine whose requests join and leave at random.
class Engine {
 public:
  void jump(Draws& draws, Time gap, std::int64_t count, TokenGaps& gaps,
            std::vector<Counts>& expected) {
    if (open_.empty() || draws.below(3) == 0)
      open_.push_back({draws.below(expected.size()), log_.end()});
    if (log_.is_full()) {
      ++flushes_;
      gaps.count_sections(log_, std::ranges::min(open_, {}, &Open::begin).begin);
    }
    log_.append(gap, count);
    for (const Open& open : open_) expected[open.group][gap.ns] += count;
    if (draws.below(3) == 0) leave(draws.below(open_.size()));
  }
  void close(TokenGaps& gaps) {
    while (!open_.empty()) leave(0);
    gaps.keep(log_);
  }
  int flushes() const { return flushes_; }

 private:
  struct Open {
    std::size_t group;
    std::int64_t begin;
  };
  void leave(std::size_t i) {
    log_.close_section(open_[i].begin, open_[i].group);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  std::vector<Open> open_;
  GapLog log_;
  int flushes_ = 0;
};

struct Logged {
  TokenGaps gaps;
  std::vector<Counts> expected;  // by group
};

// Two engines, and gaps that are added directly.
Logged logged(std::uint64_t seed, int jumps, bool streams) {
  Draws draws(seed, Stream::router, 1);
  Logged run;
  run.expected.resize(65 + draws.below(100));
  check(!TokenGaps::are_few(run.expected.size()), "logs");
  run.gaps.resize(run.expected.size(), streams);
  const std::uint64_t distinct = 1 + draws.below(1000);  // more than a log remembers
  std::vector<Engine> engines(2);
  for (int jump = 0; jump < jumps; ++jump) {
    const Time gap{static_cast<std::int64_t>(draws.below(distinct) * 1013)};
    const auto count = static_cast<std::int64_t>(1 + draws.below(50));
    // The first has nearly all, so that its log gets full in long runs.
    engines[draws.below(20) == 0 ? 1 : 0].jump(draws, gap, count, run.gaps, run.expected);
    if (draws.below(10) == 0) {
      const std::size_t group = draws.below(run.expected.size());
      run.gaps.add(group, gap, count);
      run.expected[group][gap.ns] += count;
    }
  }
  check((engines[0].flushes() > 0) == (jumps > 70'000), "only the log of a long run gets full");
  for (Engine& engine : engines) engine.close(run.gaps);
  run.gaps.close();
  return run;
}

void check_logged(const Logged& run, std::uint64_t seed) {
  const std::size_t groups = run.expected.size();
  GapIndex::Room room;
  for (std::size_t group = 0; group < groups; ++group) {
    check(of_group(run.gaps, group) == list(run.expected[group]), "the gaps of a group");
  }
  Draws draws(seed, Stream::router, 2);
  for (int i = 0; i < 10; ++i) {
    std::vector<std::size_t> some;
    Counts expected;
    for (std::size_t group = 0; group < groups; ++group) {
      if (draws.below(3) == 0) continue;
      some.push_back(group);
      for (const auto& [gap, count] : run.expected[group]) expected[gap] += count;
    }
    check(run.gaps.exact(some, room) == list(expected), "the gaps of several groups");
  }
}

void logs_count_like_single_gaps() {
  for (std::uint64_t seed = 0; seed < 30; ++seed) check_logged(logged(seed, 3000, false), seed);
}

void logs_may_get_full() { check_logged(logged(100, 150'000, false), 100); }

void histograms_count_at_once() {
  TokenGaps few;
  few.resize(2, true);
  check(few.row(Time{5}).empty(), "no row");
  few.add(1, Time{5}, 3);
  few.close();
  check(few.approximate()[1].count() == 3, "directly");

  const Logged many = logged(7, 3000, true);
  for (std::size_t group = 0; group < many.expected.size(); ++group) {
    check(many.gaps.approximate()[group].count() ==
              spillway::numerics::count(list(many.expected[group])),
          "from logs");
  }
}

}  // namespace

CASES(rows_count_like_single_gaps, logs_count_like_single_gaps, logs_may_get_full,
      histograms_count_at_once);
