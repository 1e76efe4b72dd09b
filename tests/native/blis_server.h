#pragma once

#include "instance/group.h"

/// The server that `BLIS_SERVER` is in Python: it allows every completion and preemption, and
/// admits a request once its first chunk fits.
inline spillway::instance::InstanceGroup blis_server() {
  spillway::instance::InstanceGroup group{.max_num_seqs = 256,
                                          .max_num_batched_tokens = 2048,
                                          .max_model_len = 0,
                                          .num_kv_blocks = 132139,
                                          .latency = spillway::instance::Linear{},
                                          .async_scheduling = false};
  group.kv_cache.reserve_full_prompt = false;
  return group;
}
