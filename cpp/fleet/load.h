#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace spillway::fleet {

/// A ready instance, as it reports itself.
struct InstanceLoad {
  double waiting = 0;
  double running = 0;
  double kv_utilization = 0;
  double prefill_tokens = 0;  ///< prompt tokens not yet computed, of waiting and running requests
  double max_num_seqs = 0;
  double kv_capacity_tokens = 0;
};

/// Which instances an autoscaler resizes.
enum class Scaled : std::uint8_t { all, prefill, decode };

/// What autoscalers see of the system at a poll.
struct FleetLoad {
  Scaled scaled = Scaled::all;
  std::int64_t queued = 0;     ///< in the gateways' queues
  std::int64_t shed = 0;       ///< since the start
  std::int64_t in_flight = 0;  ///< of the gateways
  /// The last value of the gateways' sensors (mean), in its unit; NaN: too few samples.
  double sensor = std::numeric_limits<double>::quiet_NaN();
  /// Share of the controllers' ticks since the last poll that lowered the limit; NaN: no ticks.
  double limit_decreases = std::numeric_limits<double>::quiet_NaN();
  std::vector<InstanceLoad> instances;  ///< the ready ones of those that are scaled
};

}  // namespace spillway::fleet
