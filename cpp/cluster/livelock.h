#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "cluster/clients.h"
#include "cluster/context.h"
#include "sim/event_queue.h"
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
  /// So many events lie between two checks.
  static constexpr std::uint64_t kInterval = 1u << 14;

  /// `attempts`: at most so many are made at each request.
  explicit LivelockGuard(std::uint64_t attempts) : attempts_(attempts) {}

  /// `events`: handled since the start of the run; `present`: those who take part at `now`.
  bool suspects(sim::Time now, std::uint64_t events, std::uint64_t present);
  /// `present`: requests. Where it suspects one: takes and handles more events, and throws
  /// LivelockError, which names what repeats, unless the clock advances meanwhile.
  void check(Context& context, const Clients& clients, sim::Time horizon, std::int64_t present,
             const std::function<void(const sim::Event&)>& handle);

 private:
  std::uint64_t attempts_;
  sim::Time instant_ = sim::kUnset;
  std::uint64_t events_before_ = 0;  // the first question at this instant
  std::uint64_t most_present_ = 0;   // at this instant
};

/// What an event is about, in words.
std::string actor_of(const sim::Event& event, const Clients& clients);

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
