#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "signals/signal_source.h"
#include "signals/transports.h"
#include "sim/ids.h"
#include "sim/ring.h"
#include "sim/time.h"

namespace spillway::signals {

/// The readings of periodic scrapes of the instances.
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
  bool is_lost(sim::InstanceId id, std::int64_t k) const;
  sim::Time delay() const { return delay_; }
  /// The last scrape that has arrived by `now`; zeros if there is none yet.
  const InstanceSignal& seen(sim::InstanceId id, SignalSource& source, sim::Time now);

 private:
  /// The scrapes of one instance.
  struct Series {
    sim::Ring<InstanceSignal> taken;  // oldest first
    std::int64_t next = 0;            // number of the next one
    sim::Time next_at{0};
  };

  bool is_regular() const { return jitter_ == 0 && loss_probability_ == 0; }
  // Number of the last scrape at or before `now` that, with `arrived`, is not lost; negative: none.
  std::int64_t last_scrape(sim::InstanceId id, sim::Time now, bool arrived) const;
  // Time of the last scrape that has arrived by `now`; kUnset: none.
  sim::Time visible(sim::InstanceId id, sim::Time now);
  void take_due(sim::InstanceId id, SignalSource& source, sim::Time until, sim::Time now);

  std::uint64_t seed_;
  sim::Time period_;
  sim::Time phase_;
  sim::Time delay_;
  double jitter_;
  double loss_probability_;
  std::vector<Series> of_;
  // The scrape visible to all readers of one instant, where all instances are scraped together.
  sim::Time read_at_ = sim::kUnset;
  sim::Time visible_ = sim::kUnset;
};

}  // namespace spillway::signals
