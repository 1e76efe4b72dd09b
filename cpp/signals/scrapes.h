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

/// What periodic scrapes of the instances have seen.
///
/// A scrape is no event. An instance asks for its scrapes to be taken before it changes, and a
/// reader for the one it may see; only those that a reader may still ask for are taken.
class Scrapes {
 public:
  Scrapes(const Scraped& config, std::size_t num_instances, std::uint64_t seed);

  /// Takes what is due of the instance's scrapes: those up to `now`, or before `now` if the
  /// instance's present change precedes a scrape of the same instant.
  void take(sim::InstanceId id, SignalSource& source, sim::Time now, bool inclusive) {
    const sim::Time until = inclusive ? now : now - sim::Time{1};
    if (of_[id.index()].next_at <= until) take_due(id, source, until, now);
  }
  /// When the k-th scrape of an instance is made.
  sim::Time time_of(sim::InstanceId id, std::int64_t k) const;
  bool is_lost(sim::InstanceId id, std::int64_t k) const;
  sim::Time delay() const { return delay_; }
  /// The last scrape that a reader at `now` can know of; zeros if there is none yet.
  const InstanceSignal& seen(sim::InstanceId id, SignalSource& source, sim::Time now);

 private:
  /// The scrapes of one instance.
  struct Series {
    sim::Ring<InstanceSignal> taken;  // oldest first
    std::int64_t next = 0;            // which is to be taken next
    sim::Time next_at{0};
  };

  bool is_regular() const { return jitter_ == 0 && loss_probability_ == 0; }
  // Number of the last one that is made at or before `now`, and is not lost if `arrived`; negative:
  // none.
  std::int64_t last_scrape(sim::InstanceId id, sim::Time now, bool arrived) const;
  // When the last one is made that a reader at `now` can know of; kUnset: there is none.
  sim::Time visible(sim::InstanceId id, sim::Time now);
  void take_due(sim::InstanceId id, SignalSource& source, sim::Time until, sim::Time now);

  std::uint64_t seed_;
  sim::Time period_;
  sim::Time phase_;
  sim::Time delay_;
  double jitter_;
  double loss_probability_;
  std::vector<Series> of_;
  // What all readers of one instant can know of, where all instances are scraped at once.
  sim::Time read_at_ = sim::kUnset;
  sim::Time visible_ = sim::kUnset;
};

}  // namespace spillway::signals
