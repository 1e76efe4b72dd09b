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

/// Detects a livelock: a run that handles events without end while its clock does not advance.
///
/// Legal runs may handle many events at one instant, but only a bounded number per participant:
/// every request present, every user, every engine. The guard runs at intervals and costs nothing
/// in between.
class LivelockGuard {
 public:
  /// Number of events between two checks.
  static constexpr std::uint64_t kInterval = 1u << 14;

  /// `attempts`: maximum number of attempts at a request.
  explicit LivelockGuard(std::uint64_t attempts) : attempts_(attempts) {}

  /// `events`: handled since the start of the run; `present`: number of participants at `now`.
  bool suspects(sim::Time now, std::uint64_t events, std::uint64_t present);
  /// `present`: number of requests. If it suspects a livelock, it handles more events and throws
  /// LivelockError, which names the repeated events, unless the clock advances.
  void check(Context& context, const Clients& clients, sim::Time horizon, std::int64_t present,
             const std::function<void(const sim::Event&)>& handle);

 private:
  std::uint64_t attempts_;
  sim::Time instant_ = sim::kUnset;
  std::uint64_t events_before_ = 0;  // at the first check at this instant
  std::uint64_t most_present_ = 0;   // at this instant
};

/// The actor of an event, for messages.
std::string actor_of(const sim::Event& event, const Clients& clients);

/// Counts the events of a livelock by phase and actor.
class LivelockTally {
 public:
  void add(sim::Phase phase, const std::string& actor) { ++counts_[{phase, actor}]; }
  /// The repeated events, the most frequent first.
  std::string message(sim::Time now) const;

 private:
  std::map<std::pair<sim::Phase, std::string>, std::int64_t> counts_;
};

}  // namespace spillway::cluster
