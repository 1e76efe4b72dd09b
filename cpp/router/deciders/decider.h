#pragma once

#include <cstdint>

namespace spillway::router {

/// What a decision between one instance and two may see of a request.
struct LegsQuestion {
  std::int64_t input_tokens = 0;
  /// Of these: sent to the chosen decode instance before, by the gateway's own record; 0 if no
  /// instance is chosen yet.
  std::int64_t cached_tokens = 0;
};

/// Contract of a decider: is the prompt of a request computed where the request is continued? Free
/// of effects.
class Decider {
 public:
  virtual ~Decider() = default;
  virtual bool is_local(const LegsQuestion& question) const = 0;
};

}  // namespace spillway::router
