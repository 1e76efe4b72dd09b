#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/config.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::fleet {

/// Which instances are there, and since when they serve.
class FleetState {
 public:
  /// `num_instances`: of the whole simulation.
  FleetState(const Fleet& config, std::size_t num_instances);

  /// There should be so many instances, as far as the simulation has them.
  void resize(std::int64_t instances, sim::Time now);
  /// When some instance becomes ready next; kForever: none does.
  sim::Time next_ready() const;
  /// Those that have become ready by `now` count.
  void update(sim::Time now);

  /// Those that are ready, in order; while none is, those that were last. Never empty.
  std::span<const sim::InstanceId> ready() const { return ready_; }
  /// So many are ready.
  std::int64_t num_ready() const { return num_ready_; }
  /// Those that are there, ready or not.
  std::int64_t started() const { return static_cast<std::int64_t>(ready_at_.size()); }
  /// The instance takes no request into its queue earlier.
  sim::Time serves_at(sim::InstanceId id) const {
    return id.index() < serves_at_.size() ? serves_at_[id.index()] : sim::Time{0};
  }

 private:
  std::size_t num_instances_;
  sim::Time startup_;
  sim::Time reported_;
  // The first instances of the simulation are there: of each, when it becomes ready. Those that
  // have left may still serve.
  std::vector<sim::Time> ready_at_;
  std::vector<sim::Time> serves_at_;
  std::vector<sim::InstanceId> ready_{sim::InstanceId{}};
  std::int64_t num_ready_ = 0;
};

}  // namespace spillway::fleet
