#pragma once

#include <cstdint>

#include "sim/time.h"

namespace spillway::gateway {

/// What a controller sees at a tick.
struct Reading {
  double value = 0;          ///< the sensor's aggregate, in its source's unit; NaN: too few samples
  std::int64_t samples = 0;  ///< behind the value
  std::int64_t in_flight = 0;      ///< now
  std::int64_t queued = 0;         ///< now
  std::int64_t max_in_flight = 0;  ///< since the last tick
  std::int64_t shed = 0;           ///< requests refused or expired since the last tick
  double kv_utilization = 0;       ///< mean over the instances, as their signals tell
  double hit_rate = 0;             ///< likewise, of prefix blocks
  // The governor writes these.
  bool has_demand = false;       ///< something is in flight or queued, as the guard counts it
  double since_last_tick_s = 0;  ///< whatever became of that tick
};

/// Contract of a limit controller: what should the limit be now?
///
/// `sample` tells of each single measurement of the sensor's source, as it becomes known, with the
/// instant at which its request was dispatched. `tick` follows periodically and returns the limit
/// that the policy wants, given the present one; the guard then decides whether and how far the
/// limit moves. A policy that wants no change returns `limit`. Limits are not rounded here: small
/// steps add up.
///
/// A policy that lives on the sensor's aggregate is not asked while there is none (NaN); one that
/// does not, and says so with `needs_value`, is asked at every tick.
class ControllerPolicy {
 public:
  virtual ~ControllerPolicy() = default;
  virtual bool needs_value() const { return true; }
  virtual void sample(double /*value*/, sim::Time /*dispatched*/, sim::Time /*now*/) {}
  virtual double tick(const Reading& reading, double limit, sim::Time now) = 0;
};

}  // namespace spillway::gateway
