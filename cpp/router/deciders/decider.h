#pragma once

#include <cstdint>
#include <optional>

namespace spillway::router {

/// What a decision between one instance and two may see. Loads count what this gateway sent.
struct LegsQuestion {
  std::int64_t input_tokens = 0;
  /// Of these: sent to the decode instance before, by the gateway's own record; 0 if none is known.
  std::int64_t cached_tokens = 0;
  /// What follows is of the instances that would be chosen; unset: the router would choose none.
  struct Decode {
    std::int64_t blocks = 0;  ///< of prompts in flight there, that of this request included
    std::optional<std::int64_t> total_blocks;  ///< unset: unknown
  };
  struct Prefill {
    std::int64_t tokens = 0;  ///< of prompts that it has yet to compute, without cached ones
    std::int64_t max_batched_tokens = 0;
  };
  std::optional<Decode> decode;
  std::optional<Prefill> prefill;
};

/// Contract of a decider: is the prompt of a request computed where the request is continued? Free
/// of effects.
class Decider {
 public:
  virtual ~Decider() = default;
  virtual bool is_local(const LegsQuestion& question) const = 0;
};

}  // namespace spillway::router
