#include "cluster/pool_loads.h"

namespace spillway::cluster {

PoolLoads::PoolLoads(const Context& context)
    : block_size_(context.simulation.instances.front().block_size_tokens) {
  for (const instance::InstanceGroup& group : context.simulation.instances) {
    for (std::int64_t i = 0; i < group.count; ++i) {
      limits_.push_back({group.max_num_batched_tokens, group.num_kv_blocks});
    }
  }
  loads_.resize(static_cast<std::size_t>(context.simulation.gateway.replicas) * limits_.size());
}

}  // namespace spillway::cluster
