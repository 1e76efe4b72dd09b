#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::signals {

/// What an instance reports of itself, and when that was measured.
struct InstanceSignal {
  std::int32_t waiting = 0;   ///< requests in the engine's queue
  std::int32_t running = 0;   ///< requests in the batch
  double kv_utilization = 0;  ///< used ÷ total KV blocks
  std::int64_t free_blocks = 0;
  sim::Time measured{0};
};

/// What a decision may see of the request it is about. The output length is not known in advance.
struct RequestView {
  sim::RequestId id;
  std::int32_t input_tokens = 0;
  std::uint16_t tenant = 0;
  std::uint16_t slo_class = 0;
  std::int64_t priority = 0;  ///< of its SLO class; higher is more important
  sim::Time arrival;
};

/// An instance as the telemetry sees it.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual InstanceSignal read(sim::Time now) const = 0;
};

/// What a decision may see of the fleet: values with their ages, never the truth. A value is only
/// read if it is asked for. Valid during the decision it was made for.
class View {
 public:
  /// `stored` holds past readings; where it is empty, every value is read from its probe at `now`.
  View(std::span<const Probe* const> probes, std::span<const InstanceSignal> stored,
       std::span<const std::int32_t> in_flight, sim::Time now)
      : probes_(probes), stored_(stored), in_flight_(in_flight), now_(now) {}

  std::size_t size() const { return in_flight_.size(); }
  /// As reported, possibly old.
  InstanceSignal instance(std::size_t i) const {
    return stored_.empty() ? probes_[i]->read(now_) : stored_[i];
  }
  /// Requests routed there and not yet finished: the router's own count, always fresh.
  std::int32_t in_flight(std::size_t i) const { return in_flight_[i]; }
  /// Waiting + running + in flight. Requests that the instance reports count twice, as in BLIS's
  /// EffectiveLoad.
  std::int64_t effective_load(std::size_t i) const {
    const InstanceSignal reported = instance(i);
    return std::int64_t{reported.waiting} + reported.running + in_flight_[i];
  }

 private:
  std::span<const Probe* const> probes_;
  std::span<const InstanceSignal> stored_;
  std::span<const std::int32_t> in_flight_;
  sim::Time now_;
};

}  // namespace spillway::signals
