#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::signals {

/// The metrics that an instance reports, and when they were measured.
struct InstanceSignal {
  std::int32_t waiting = 0;   ///< requests in the engine's queue
  std::int32_t running = 0;   ///< requests in the batch
  double kv_utilization = 0;  ///< used ÷ total KV blocks
  std::int64_t free_blocks = 0;
  std::int64_t prefill_tokens =
      0;  ///< prompt tokens not yet computed, of waiting and running requests
  std::int64_t prefix_hits = 0;     ///< cached KV blocks that were reused, since the start
  std::int64_t prefix_lookups = 0;  ///< KV blocks that were looked up, since the start
  sim::Time measured{0};            ///< kUnset: never
};

/// The capacity that an instance reports once, when it registers.
struct Capacity {
  std::int64_t max_num_seqs = 0;
  std::int64_t max_num_batched_tokens = 0;
  std::int64_t num_kv_blocks = 0;
  std::int64_t block_size_tokens = 0;
};

/// Numbers of requests in an instance.
struct Occupancy {
  std::int32_t waiting = 0;
  std::int32_t running = 0;
};

/// An instance as the telemetry sees it. Reads never change the behavior of an instance; they may
/// update lazy state.
class SignalSource {
 public:
  virtual ~SignalSource() = default;
  virtual InstanceSignal read(sim::Time now) = 0;
  /// A part of what `read` returns, at lower cost.
  virtual Occupancy occupancy() const = 0;
  /// Total over its ranks.
  virtual Capacity capacity() const = 0;
  /// Number of leading blocks of the request's prompt that its KV memory holds.
  virtual std::int64_t cached_blocks(sim::RequestId id, sim::Time now) = 0;

  /// Number of data-parallel ranks; an instance without ranks is its own single rank.
  virtual std::size_t num_ranks() const { return 1; }
  virtual SignalSource& rank(std::size_t /*i*/) { return *this; }
  /// The rank to which the instance assigns the next request, unless the router chooses one.
  virtual std::size_t next_rank() const { return 0; }
};

}  // namespace spillway::signals
