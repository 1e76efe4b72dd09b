#pragma once

#include <cstdint>
#include <limits>

#include "sim/time.h"

namespace spillway::instance {

/// The rules of an ingress. A request enters the engine if no other request waits and all limits
/// allow it; otherwise it waits in the ingress's own queue, or is refused if that is full.
struct IngressRules {
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

  std::int64_t most_unfinished = kAny;         ///< inside the engine
  std::int64_t most_awaiting_response = kAny;  ///< inside the engine without a first token
  std::int64_t queue_size = 0;                 ///< maximum number of waiting requests
  sim::Time longest_wait = sim::kForever;      ///< a request is refused after this wait
  bool newest_after_expiry = false;  ///< after such a refusal, the newest request enters next
  // Lengths of the engine's queue from which every request is refused.
  std::int64_t most_engine_requests = kAny;
  bool counts_running = false;  ///< the batch counts, too
  std::int64_t most_engine_tokens = kAny;

  // Positions among the alternative's reasons.
  std::uint8_t when_full = 0;
  std::uint8_t when_expired = 0;
  std::uint8_t when_tokens = 0;
};

}  // namespace spillway::instance
