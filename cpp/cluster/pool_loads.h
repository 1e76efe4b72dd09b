#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cluster/context.h"
#include "instance/kv_cache/block_size.h"
#include "router/deciders/decider.h"
#include "sim/ids.h"

namespace spillway::cluster {

/// What deciders see of the load of both pools: each gateway's own count of what it sent and what
/// has not ended.
class PoolLoads {
 public:
  explicit PoolLoads(const Context& context);

  void add_prefill(std::size_t gateway, sim::InstanceId instance, std::int64_t tokens) {
    at(gateway, instance).prefill_tokens += tokens;
  }
  void add_decode(std::size_t gateway, sim::InstanceId instance, std::int64_t tokens) {
    at(gateway, instance).decode_blocks += block_size_.blocks_for(tokens);
  }
  void drop_decode(std::size_t gateway, sim::InstanceId instance, std::int64_t tokens) {
    at(gateway, instance).decode_blocks -= block_size_.blocks_for(tokens);
  }
  std::int64_t blocks_for(std::int64_t tokens) const { return block_size_.blocks_for(tokens); }
  /// An instance that would be chosen, with its load.
  router::LegsQuestion::Choice choice(std::size_t gateway, sim::InstanceId instance) {
    const Load& load = at(gateway, instance);
    const Limits& limits = limits_[instance.index()];
    return {.instance = instance,
            .pending_tokens = load.prefill_tokens,
            .blocks_in_flight = load.decode_blocks,
            .max_num_batched_tokens = limits.max_batched_tokens,
            .num_kv_blocks = limits.num_kv_blocks};
  }

 private:
  struct Load {
    std::int64_t prefill_tokens = 0;
    std::int64_t decode_blocks = 0;
  };
  struct Limits {
    std::int64_t max_batched_tokens = 0;
    std::int64_t num_kv_blocks = 0;
  };

  Load& at(std::size_t gateway, sim::InstanceId instance) {
    return loads_[gateway * limits_.size() + instance.index()];
  }
  instance::BlockSize block_size_;
  std::vector<Limits> limits_;  // by instance
  std::vector<Load> loads_;     // by gateway and instance
};

}  // namespace spillway::cluster
