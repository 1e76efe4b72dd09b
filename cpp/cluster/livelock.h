#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "sim/phase.h"
#include "sim/time.h"

namespace spillway::cluster {

/// Suspects a livelock: a run that handles event after event while its clock stands still.
///
/// Legal runs may handle very many events at one instant, but only so many for each of those who
/// take part: every request present, every user, every engine. The guard is asked every so often,
/// and costs nothing between.
class LivelockGuard {
 public:
  /// `attempts`: at most so many are made at each request.
  explicit LivelockGuard(std::uint64_t attempts) : attempts_(attempts) {}

  /// `events`: handled since the start of the run; `present`: those who take part at `now`.
  bool suspects(sim::Time now, std::uint64_t events, std::uint64_t present);

 private:
  std::uint64_t attempts_;
  sim::Time instant_ = sim::kUnset;
  std::uint64_t events_before_ = 0;  // the first question at this instant
  std::uint64_t most_present_ = 0;   // at this instant
};

/// Counts the events of a livelock by what they are and who they concern.
class LivelockTally {
 public:
  void add(sim::Phase phase, const std::string& actor) { ++counts_[{phase, actor}]; }
  /// What repeats, the most frequent first.
  std::string message(sim::Time now) const;

 private:
  std::map<std::pair<sim::Phase, std::string>, std::int64_t> counts_;
};

}  // namespace spillway::cluster
