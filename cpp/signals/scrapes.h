#pragma once

#include <cstddef>
#include <vector>

#include "signals/probe.h"
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
  Scrapes(const Scraped& config, std::size_t num_instances);

  /// Takes what is due of the instance's scrapes: those up to `now`, or before `now` if the
  /// instance's present change precedes a scrape of the same instant.
  void take(sim::InstanceId id, Probe& probe, sim::Time now, bool inclusive) {
    const sim::Time until = inclusive ? now : now - sim::Time{1};
    if (next_[id.index()] <= until) take_due(id, probe, until, now);
  }
  /// The last scrape that a reader at `now` can know of; zeros if there is none yet.
  const InstanceSignal& seen(sim::InstanceId id, Probe& probe, sim::Time now);

 private:
  /// The last scrape at or before `now`; before the first one: kUnset.
  sim::Time last_scrape(sim::Time now) const;
  void take_due(sim::InstanceId id, Probe& probe, sim::Time until, sim::Time now);

  sim::Time period_;
  sim::Time phase_;
  sim::Time delay_;
  // Per instance:
  std::vector<sim::Ring<InstanceSignal>> taken_;  // oldest first
  std::vector<sim::Time> next_;                   // the next one to be taken
  // For all readers of one instant:
  sim::Time read_at_ = sim::kUnset;
  sim::Time visible_ = sim::kUnset;
};

}  // namespace spillway::signals
