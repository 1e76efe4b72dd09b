#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fleet/autoscaler.h"
#include "fleet/config.h"
#include "fleet/fleet.h"
#include "sim/time.h"

namespace spillway::fleet {

/// Resizes a fleet by its schedule and its autoscaler.
class Resizer {
 public:
  explicit Resizer(const Fleet& config);

  /// Applies the changes that are due by `now`. `shed`: requests shed since the start.
  void apply(FleetState& fleet, std::int64_t queued, std::int64_t shed, sim::Time now);
  /// Time of the next change or poll; kForever: none.
  sim::Time next() const;

 private:
  std::vector<FleetChange> changes_;  // in order of time
  std::size_t next_change_ = 0;
  std::optional<ScalerState> scaler_;
  sim::Time poll_period_{0};
  sim::Time next_poll_ = sim::kForever;
};

}  // namespace spillway::fleet
