#pragma once

#include "sim/rng.h"

namespace spillway::workload {

/// Contract of an arrival process: independent gaps between the requests of one client. `gap_s`
/// returns the next gap in seconds, ≥ 0, with mean 1 / rate; it draws only from `draws`, which
/// belongs to that arrival.
class ArrivalProcess {
 public:
  virtual ~ArrivalProcess() = default;
  virtual double gap_s(sim::Draws& draws) const = 0;
};

}  // namespace spillway::workload
