#pragma once

#include "sim/rng.h"

namespace spillway::workload {

/// Contract of an arrival process: the gaps between the requests of one client, in order. `gap_s`
/// returns the next gap in seconds, ≥ 0; over a long time 1 / (mean gap) is the rate. It draws only
/// from `draws`, which belongs to that arrival. What a process remembers of earlier gaps is its own
/// state, so every client has a process of its own.
class ArrivalProcess {
 public:
  virtual ~ArrivalProcess() = default;
  virtual double gap_s(sim::Draws& draws) = 0;
};

}  // namespace spillway::workload
