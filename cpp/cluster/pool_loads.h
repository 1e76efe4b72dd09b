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
  void add_decode(std::size_t gateway, sim::InstanceId instance, sim::RequestId id) {
    at(gateway, instance).decode_blocks +=
        block_size_.blocks_for(context_->requests.input_tokens(id));
  }
  void drop_decode(std::size_t gateway, sim::InstanceId instance, sim::RequestId id) {
    at(gateway, instance).decode_blocks -=
        block_size_.blocks_for(context_->requests.input_tokens(id));
  }
  /// With a prompt of `input_tokens`.
  router::LegsQuestion::Decode decode(std::size_t gateway, sim::InstanceId instance,
                                      std::int64_t input_tokens) {
    return {at(gateway, instance).decode_blocks + block_size_.blocks_for(input_tokens),
            limits_[instance.index()].num_kv_blocks};
  }
  router::LegsQuestion::Prefill prefill(std::size_t gateway, sim::InstanceId instance) {
    return {at(gateway, instance).prefill_tokens, limits_[instance.index()].max_batched_tokens};
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
  const Context* context_;
  instance::BlockSize block_size_;
  std::vector<Limits> limits_;  // by instance
  std::vector<Load> loads_;     // by gateway and instance
};

}  // namespace spillway::cluster
