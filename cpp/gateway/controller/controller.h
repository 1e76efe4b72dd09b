#pragma once

#include <cstdint>
#include <stdexcept>

#include "gateway/controller/policies.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The input of a controller at a tick.
struct Reading {
  double value = 0;          ///< the sensor's aggregate, in its source's unit; NaN: too few samples
  std::int64_t samples = 0;  ///< number of samples in the value
  std::int64_t in_flight = 0;      ///< now
  std::int64_t queued = 0;         ///< now
  std::int64_t max_in_flight = 0;  ///< since the last tick
  std::int64_t shed = 0;           ///< requests rejected, evicted or expired since the last tick
  double kv_utilization = 0;       ///< mean over the instances, by their signals
  double hit_rate = 0;             ///< of prefix blocks, mean over the instances, by their signals
  // Written by the governor.
  bool has_demand = false;       ///< whether there is demand, by the guard's definition
  double since_last_tick_s = 0;  ///< whatever the result of that tick
};

/// Contract of a limit controller: what should the limit be now?
///
/// `sample`: a single measurement of the sensor's source, as it becomes known, with the dispatch
/// time of its request. `tick` follows periodically and returns the limit that the policy wants,
/// given the current one; the guard then decides whether and how far the limit moves. To keep the
/// limit, a policy returns `limit`. Limits are not rounded here: small steps add up.
///
/// `tick` is not called while the sensor has no value (NaN), unless `needs_value` is false.
class ControllerPolicy {
 public:
  virtual ~ControllerPolicy() = default;
  virtual bool needs_value() const { return true; }
  virtual void sample(double /*value*/, sim::Time /*dispatched*/, sim::Time /*now*/) {}
  virtual double tick(const Reading& reading, double limit, sim::Time now) = 0;
  /// Until when further ticks with the same reading, without samples or demand, change nothing in
  /// the policy and return the same. `limit`: that of the last tick, which it kept.
  virtual sim::Time settled_until(const Reading& /*reading*/, double /*limit*/) const {
    return sim::Time{0};
  }
  /// Settings have changed; only called with changed ones of its own kind.
  virtual void change(const Controller& /*to*/) {
    throw std::logic_error("a controller with changeable settings has no change()");
  }
};

}  // namespace spillway::gateway
