#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gateway/config.h"
#include "gateway/controller/guard.h"
#include "gateway/limit/limit.h"
#include "signals/sensor.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::gateway {

/// The record of one tick of a controller.
struct ControlRecord {
  sim::Time at;
  std::uint16_t replica = 0;
  ControlAction action = ControlAction::hold;
  double value = 0;  ///< of the sensor; NaN: too few samples
  std::int64_t samples = 0;
  double setting = 0;  ///< the limit after the tick
  double permits = 0;  ///< permits after the tick; NaN: not counted in requests
  std::int64_t in_flight = 0;
  std::int64_t repeats = 0;  ///< ticks alike that follow, one interval after another
};

/// A controlled limit: the sensor measures, and at each tick the controller and its guard move the
/// limit.
class ControlLoop final {
 public:
  /// `limit` is movable and outlives the loop. `requests`: whose tenants and classes the sensor
  /// names.
  ControlLoop(const Gateway& config, LimitPolicy& limit, const workload::RequestTable& requests,
              std::uint16_t replica, std::uint64_t seed);

  // ---- measurements; `dispatched`: time of the request's dispatch --------------------------

  /// `in_flight`: number of requests, including this one.
  void dispatched(const signals::RequestView& request, std::int64_t in_flight, sim::Time now) {
    max_in_flight_ = std::max(max_in_flight_, in_flight);
    measure(signals::SensorSource::queue_delay, request, now - request.arrival(), now, now);
  }
  void first_token(const signals::RequestView& request, sim::Time dispatched,
                   sim::Time entered_engine, sim::Time now) {
    measure(signals::SensorSource::ttft, request, now - request.arrival(), dispatched, now);
    measure(signals::SensorSource::engine_ttft, request, now - entered_engine, dispatched, now);
  }
  void ended(const signals::RequestView& request, workload::Outcome outcome, sim::Time dispatched,
             sim::Time now);
  /// A request was rejected, evicted or has expired.
  void shed() { ++shed_; }

  // ---- control -----------------------------------------------------------------------------

  /// `view`: null unless the sensor or the controller needs `fleet_signals`.
  void tick(std::int64_t in_flight, std::int64_t queued, const signals::View* view, sim::Time now);
  /// Settings have changed. `from`: those in force before. The control continues from the limit in
  /// force.
  void change(const Gateway& from, const Gateway& to);
  const std::vector<ControlRecord>& log() const { return log_; }
  /// Until when ticks are like the last one if no request comes and `reads_fleet` is false or the
  /// fleet's metrics stay the same; 0: the next one may differ.
  sim::Time settled_until() const { return settled_until_; }
  bool reads_fleet() const { return reads_fleet_; }
  /// Ticks like the last one follow, one interval after another. Precondition: `settled_until`.
  void repeat(std::int64_t ticks) { log_.back().repeats += ticks; }

 private:
  // Ignores measurements of other sources than the sensor's.
  void measure(signals::SensorSource source, const signals::RequestView& request, sim::Time value,
               sim::Time dispatched, sim::Time now) {
    if (source == source_ && counts(request)) {
      record(request, sim::to_seconds(value), dispatched, now);
    }
  }
  // Whether the request is in the scope of the sensor.
  bool counts(const signals::RequestView& request) const {
    if (scope_ == signals::SensorScope::tenant) return request.tenant() == tenant_;
    return scope_ != signals::SensorScope::slo_class || request.slo_class() == slo_class_;
  }
  void record(const signals::RequestView& request, double value_s, sim::Time dispatched,
              sim::Time now);
  void read_fleet(const signals::View& view, Reading& reading);

  LimitPolicy& limit_;
  std::uint16_t replica_;
  signals::SensorSource source_;
  signals::SensorScope scope_;
  std::size_t tenant_;     // with scope tenant
  std::size_t slo_class_;  // with scope slo_class
  bool samples_refusals_;
  bool reads_fleet_;
  signals::SensorState sensor_;
  Governor governor_;
  std::int64_t max_in_flight_ = 0;  // since the last tick
  std::int64_t shed_ = 0;           // since the last tick
  // Totals of the fleet at the last tick with any lookup, and the rate between the last two such
  // ticks.
  std::int64_t prefix_hits_ = 0;
  std::int64_t prefix_lookups_ = 0;
  double hit_rate_ = 0;
  sim::Time settled_until_{0};
  std::vector<ControlRecord> log_;
};

}  // namespace spillway::gateway
