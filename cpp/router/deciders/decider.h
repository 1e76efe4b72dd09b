#pragma once

#include <cstdint>
#include <optional>

#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::router {

/// What a decision between one instance and two may see. Loads count what this gateway sent.
struct LegsQuestion {
  /// An instance that its router would choose. The loads are set if the decider reads them.
  struct Choice {
    sim::InstanceId instance;
    /// Of the prompt: sent there before, by the gateway's own record; 0 if none is known.
    std::int64_t cached_tokens = 0;
    /// Of the prompts whose prefill legs are in flight there: yet to compute, without cached ones.
    std::int64_t pending_tokens = 0;
    /// Of the prompts in flight there, which it continues or serves wholly.
    std::int64_t blocks_in_flight = 0;
    std::int64_t max_num_batched_tokens = 0;
    std::optional<std::int64_t> num_kv_blocks;  ///< unset: unknown
  };

  const signals::RequestView* request = nullptr;  ///< set in a run
  sim::Time now{0};
  std::int64_t prompt_tokens = 0;  ///< with the output of instances that the request has lost
  std::int64_t prompt_blocks = 0;  ///< set if the decider reads loads
  /// Unset: the router would choose none, or was not asked.
  std::optional<Choice> decode;
  std::optional<Choice> prefill;
};

/// Contract of a decider: is the prompt of a request computed where the request is continued? It is
/// asked at each dispatch, while a prefill instance is ready. Each gateway replica has its own.
class Decider {
 public:
  virtual ~Decider() = default;
  virtual bool is_local(const LegsQuestion& question) = 0;
};

}  // namespace spillway::router
