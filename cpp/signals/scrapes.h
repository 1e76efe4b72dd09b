#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "signals/signal_source.h"
#include "signals/transports.h"
#include "sim/ids.h"
#include "sim/ring.h"
#include "sim/time.h"

namespace spillway::signals {

/// The readings of periodic scrapes of the instances, as decisions see them.
///
/// A scrape is not an event. An instance takes its due scrapes before it changes, and a reader
/// takes those that it may see; only scrapes that a reader may still need are taken.
class Scrapes {
 public:
  Scrapes(const Scraped& config, std::size_t num_instances, std::uint64_t seed);

  /// Takes the instance's due scrapes: those up to `now`, or before `now` if the instance's present
  /// change precedes a scrape of the same instant.
  void take(sim::InstanceId id, SignalSource& source, sim::Time now, bool inclusive) {
    const sim::Time until = inclusive ? now : now - sim::Time{1};
    if (of_[id.index()].next_at <= until) take_due(id, source, until, now);
  }
  /// Time of the k-th scrape of an instance.
  sim::Time time_of(sim::InstanceId id, std::int64_t k) const;
  bool is_lost(sim::InstanceId id, std::int64_t k) const {
    return (loss_probability_ > 0 || !of_[id.index()].silent.empty()) && is_lost_on_way(id, k);
  }
  /// From now on scrapes of the instance are lost, or no longer. Its due scrapes have been taken.
  void set_silent(sim::InstanceId id, bool is_silent, sim::Time now);
  sim::Time delay() const { return delay_; }
  sim::Time period() const { return period_; }
  /// The last scrape that has arrived by `now`, or its substitute if it is stale; zeros if there is
  /// none yet. `now` does not decrease from call to call.
  const InstanceSignal& seen(sim::InstanceId id, SignalSource& source, sim::Time now) {
    const Series& series = of_[id.index()];
    if (now >= series.seen_until) renew_seen(id, source, now);
    return series.seen;
  }
  bool is_stale(sim::InstanceId id, SignalSource& source, sim::Time now) {
    return is_too_old(seen(id, source, now).measured, now);
  }
  /// Whether an instance with a stale scrape gets no requests while there are others.
  bool skips_stale() const {
    return stale_after_ != sim::kForever && when_stale_ == WhenStale::fail_closed;
  }

 private:
  /// The scrapes of one instance.
  struct Series {
    sim::Ring<InstanceSignal> taken;  // oldest first
    std::int64_t next = 0;            // number of the next one
    sim::Time next_at{0};
    InstanceSignal seen;
    sim::Time seen_until = sim::kUnset;  // `seen` is valid before
    // From when to when its scrapes are lost, in order of time.
    std::vector<std::pair<sim::Time, sim::Time>> silent;
  };

  // Number of the last scrape at or before `now`; negative: none.
  std::int64_t last_scrape(sim::InstanceId id, sim::Time now);
  // The same of scrapes that are not lost. `last`: the last scrape.
  std::int64_t last_kept(sim::InstanceId id, std::int64_t last) const;
  bool is_lost_on_way(sim::InstanceId id, std::int64_t k) const;
  bool is_too_old(sim::Time measured, sim::Time now) const {
    if (stale_after_ == sim::kForever) return false;
    return !sim::is_set(measured) || now - measured >= stale_after_;
  }
  void renew_seen(sim::InstanceId id, SignalSource& source, sim::Time now);
  void take_due(sim::InstanceId id, SignalSource& source, sim::Time until, sim::Time now);

  std::uint64_t seed_;
  sim::Time period_;
  sim::Time phase_;
  sim::Time delay_;
  double jitter_;
  double loss_probability_;
  sim::Time stale_after_;
  WhenStale when_stale_;
  std::vector<Series> of_;
  // The latest answer of `last_scrape` before jitter: instances are usually scraped together.
  std::int64_t last_regular_ = 0;
  sim::Time last_regular_at_;
};

}  // namespace spillway::signals
