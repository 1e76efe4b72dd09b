#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::signals {

/// What an instance reports of itself, and when that was measured.
struct InstanceSignal {
  std::int32_t waiting = 0;   ///< requests in the engine's queue
  std::int32_t running = 0;   ///< requests in the batch
  double kv_utilization = 0;  ///< used ÷ total KV blocks
  std::int64_t free_blocks = 0;
  std::int64_t prefill_tokens = 0;  ///< of prompts, waiting or running, not yet computed
  std::int64_t prefix_hits = 0;     ///< KV blocks found again, since the start
  std::int64_t prefix_lookups = 0;  ///< of so many that were looked for
  sim::Time measured{0};            ///< kUnset: never
};

/// What an instance says of itself once, as it registers.
struct Capacity {
  std::int64_t max_num_seqs = 0;
  std::int64_t max_num_batched_tokens = 0;
  std::int64_t num_kv_blocks = 0;
  std::int64_t block_size_tokens = 0;
};

/// How many requests an instance holds.
struct Occupancy {
  std::int32_t waiting = 0;
  std::int32_t running = 0;
};

/// An instance as the telemetry sees it. Reads never change what an instance does; they may bring
/// up to date what it keeps lazily.
class SignalSource {
 public:
  virtual ~SignalSource() = default;
  virtual InstanceSignal read(sim::Time now) = 0;
  /// Part of what `read` returns, at less cost.
  virtual Occupancy occupancy() const = 0;
  /// Of all its ranks together.
  virtual Capacity capacity() const = 0;
  /// How many blocks of the request's prompt, from the first on, its KV memory holds.
  virtual std::int64_t cached_blocks(sim::RequestId id, sim::Time now) = 0;

  /// Its data-parallel ranks; an instance without any is its own only one.
  virtual std::size_t num_ranks() const { return 1; }
  virtual SignalSource& rank(std::size_t /*i*/) { return *this; }
  /// The rank that the instance gives the next request, unless the router chooses one.
  virtual std::size_t next_rank() const { return 0; }
};

}  // namespace spillway::signals
