#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cluster/health.h"
#include "sim/time.h"

namespace spillway::cluster {

/// When each instance of a run did not serve: from a crash or hang until it served again.
class Outages {
 public:
  explicit Outages(std::span<const FaultReport> reports);

  /// How much of the time from `since` to `until` falls into outages of the instance.
  sim::Time overlap(std::size_t instance, sim::Time since, sim::Time until) const;

 private:
  struct Outage {
    sim::Time begin;
    sim::Time end;
  };
  std::vector<std::vector<Outage>> of_;  // by instance, in order
};

}  // namespace spillway::cluster
