#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/config.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::fleet {

/// The instances in service, and when each becomes ready: of a fleet, or of its prefill and decode
/// pools, whose sizes differ.
class FleetState {
 public:
  /// `num_instances`: of the whole simulation.
  FleetState(const Fleet& config, std::size_t num_instances);
  /// With pools, each of which holds all instances of one role, in order.
  FleetState(const Fleet& config, std::vector<sim::InstanceId> prefill,
             std::vector<sim::InstanceId> decode);

  /// 1, or 2 with a prefill and a decode pool, in this order.
  std::size_t num_pools() const { return pools_.size(); }
  /// Sets the target number of instances of a pool, up to the number in the simulation.
  void resize(std::size_t pool, std::int64_t instances, sim::Time now);
  /// Time at which the next instance becomes ready; kForever: none.
  sim::Time next_ready() const;
  /// Makes the instances that are due by `now` ready. True: their number has changed in a pool.
  bool update(sim::Time now);

  /// Whether the gateway knows that the instance has failed: it is not ready then.
  void set_failed(sim::InstanceId id, bool is_known);

  /// The ready instances, in order; while none is, the last ready ones. Never empty.
  std::span<const sim::InstanceId> ready() const { return ready_; }
  /// The ready instances of a pool, in order.
  std::span<const sim::InstanceId> ready(std::size_t pool) const { return pools_[pool].ready; }
  /// Number of ready instances.
  std::int64_t num_ready() const { return num_ready_; }
  /// Time for which the instance has been in service by `end`, ready or not.
  sim::Time in_service(sim::InstanceId id, sim::Time end) const;
  /// Number of instances of a pool.
  std::int64_t size(std::size_t pool) const {
    return static_cast<std::int64_t>(pools_[pool].members.size());
  }
  bool is_in_service(sim::InstanceId id) const { return sim::is_set(since_[id.index()]); }
  /// Number of instances of a pool in service, ready or not.
  std::int64_t started(std::size_t pool) const {
    return static_cast<std::int64_t>(pools_[pool].ready_at.size());
  }
  /// Time from which the instance takes requests into its queue.
  sim::Time serves_at(sim::InstanceId id) const {
    return id.index() < serves_at_.size() ? serves_at_[id.index()] : sim::Time{0};
  }

 private:
  struct Pool {
    std::vector<sim::InstanceId> members;
    // When each instance in service becomes ready: these are the first members. Those that have
    // left may still finish requests.
    std::vector<sim::Time> ready_at;
    std::vector<sim::InstanceId> ready;
  };

  FleetState(const Fleet& config, std::size_t num_instances, std::vector<Pool> pools);

  sim::Time startup_;
  sim::Time reported_;
  std::vector<Pool> pools_;
  std::vector<sim::Time> serves_at_;
  // By instance: its last entry into service, if it is there, and the time in service before that.
  std::vector<sim::Time> since_;
  std::vector<sim::Time> in_service_;
  std::vector<bool> has_failed_;  // by instance; empty: none has
  std::vector<sim::InstanceId> ready_{sim::InstanceId{}};
  sim::Time next_ready_ = sim::kForever;
  std::int64_t num_ready_ = 0;
};

}  // namespace spillway::fleet
