#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_table.h"

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
class RequestView {
 public:
  RequestView(const workload::RequestTable& requests, sim::RequestId id)
      : requests_(&requests), id_(id) {}

  sim::RequestId id() const { return id_; }
  /// Position in the order of arrival.
  std::uint32_t row() const { return requests_->row(id_); }
  std::int32_t input_tokens() const { return requests_->input_tokens(id_); }
  std::uint16_t tenant() const { return requests_->tenant(id_); }
  std::uint16_t slo_class() const { return requests_->slo_class(id_); }
  /// Of its SLO class; higher is more important.
  std::int64_t priority() const { return requests_->class_of(id_).priority; }
  sim::Time arrival() const { return requests_->arrival(id_); }

 private:
  const workload::RequestTable* requests_;
  sim::RequestId id_;
};

/// How many requests an instance holds.
struct Occupancy {
  std::int32_t waiting = 0;
  std::int32_t running = 0;
};

/// An instance as the telemetry sees it. Reads never change what an instance does; they may bring
/// up to date what it keeps lazily.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual InstanceSignal read(sim::Time now) = 0;
  /// Part of what `read` returns, at less cost.
  virtual Occupancy occupancy() const = 0;
};

/// What a decision may see of the fleet: values with their ages, never the truth. A value is only
/// read if it is asked for. Valid during the decision it was made for.
class View {
 public:
  /// `stored` holds past readings; where it is empty, every value is read from its probe at `now`.
  View(std::span<Probe* const> probes, std::span<const InstanceSignal> stored,
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
    const Occupancy reported = stored_.empty() ? probes_[i]->occupancy()
                                               : Occupancy{stored_[i].waiting, stored_[i].running};
    return std::int64_t{reported.waiting} + reported.running + in_flight_[i];
  }

 private:
  std::span<Probe* const> probes_;
  std::span<const InstanceSignal> stored_;
  std::span<const std::int32_t> in_flight_;
  sim::Time now_;
};

}  // namespace spillway::signals
