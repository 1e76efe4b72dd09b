#pragma once

#include <cstdint>
#include <limits>

#include "sim/time.h"

namespace spillway::instance {

/// What an ingress amounts to. A request enters the engine if none waits before it and all limits
/// allow it; else it waits in the ingress's own queue, or is refused if that is full.
struct IngressRules {
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

  std::int64_t most_unfinished = kAny;         ///< inside the engine
  std::int64_t most_awaiting_response = kAny;  ///< of these, without a first token
  std::int64_t queue_size = 0;                 ///< most requests that wait
  sim::Time longest_wait = sim::kForever;      ///< a request that has waited so long is refused
  bool newest_after_expiry = false;  ///< the first to enter after a refusal for that is the newest
  // Of the engine's queue: from here on everything is refused.
  std::int64_t most_engine_requests = kAny;
  std::int64_t most_engine_tokens = kAny;

  // Positions among the alternative's reasons.
  std::uint8_t when_full = 0;
  std::uint8_t when_expired = 0;
  std::uint8_t when_tokens = 0;
};

}  // namespace spillway::instance
