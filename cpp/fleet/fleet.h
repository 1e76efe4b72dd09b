#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/config.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::fleet {

/// The instances in service, and when each becomes ready.
class FleetState {
 public:
  /// `num_instances`: of the whole simulation.
  FleetState(const Fleet& config, std::size_t num_instances);

  /// Sets the target number of instances, up to the number in the simulation.
  void resize(std::int64_t instances, sim::Time now);
  /// Time at which the next instance becomes ready; kForever: none.
  sim::Time next_ready() const;
  /// Makes the instances that are due by `now` ready.
  void update(sim::Time now);

  /// The ready instances, in order; while none is, the last ready ones. Never empty.
  std::span<const sim::InstanceId> ready() const { return ready_; }
  /// Number of ready instances.
  std::int64_t num_ready() const { return num_ready_; }
  /// Time for which the instance has been in service by `end`, ready or not.
  sim::Time in_service(sim::InstanceId id, sim::Time end) const;
  /// Number of instances in service, ready or not.
  std::int64_t started() const { return static_cast<std::int64_t>(ready_at_.size()); }
  /// Time from which the instance takes requests into its queue.
  sim::Time serves_at(sim::InstanceId id) const {
    return id.index() < serves_at_.size() ? serves_at_[id.index()] : sim::Time{0};
  }

 private:
  std::size_t num_instances_;
  sim::Time startup_;
  sim::Time reported_;
  // When each instance in service becomes ready: these are the first ones of the simulation. Those
  // that have left may still finish requests.
  std::vector<sim::Time> ready_at_;
  std::vector<sim::Time> serves_at_;
  // By instance: its last entry into service, and the time in service before that.
  std::vector<sim::Time> since_;
  std::vector<sim::Time> in_service_;
  std::vector<sim::InstanceId> ready_{sim::InstanceId{}};
  std::int64_t num_ready_ = 0;
};

}  // namespace spillway::fleet
