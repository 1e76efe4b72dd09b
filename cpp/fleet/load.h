#pragma once

#include <cmath>
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
  // As an autoscaler that reads them estimates them.
  double ttft_s = 0;
  double itl_s = 0;

  bool operator==(const InstanceLoad&) const = default;
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

/// Whether an autoscaler sees the same of both.
inline bool is_same(const FleetLoad& a, const FleetLoad& b) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return a.queued == b.queued && a.shed == b.shed && a.in_flight == b.in_flight &&
         equal(a.sensor, b.sensor) && equal(a.limit_decreases, b.limit_decreases) &&
         a.instances == b.instances;
}

}  // namespace spillway::fleet
