#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace spillway::workload {

/// The status of a request at the end of a run: how it ended or, if unfinished, where it is.
enum class Outcome : std::uint8_t {
  completed,   ///< all tokens delivered
  rejected,    ///< refused by the gateway's admission, a full queue, its router or a worker
  expired,     ///< left a queue after its time-out
  evicted,     ///< removed to make room for another
  failed,      ///< lost to a fault
  cancelled,   ///< withdrawn by the client
  queued,      ///< still in a tenant queue
  running,     ///< still in an instance, waiting or running
  in_transit,  ///< still between two stages
};
inline constexpr std::array<std::string_view, 9> kOutcomeNames{
    "completed", "rejected", "expired", "evicted",   "failed",
    "cancelled", "queued",   "running", "in_transit"};

/// A category of the common vocabulary for rejections, with the HTTP status that each target system
/// returns for it.
struct ReasonCategory {
  std::string_view name;
  int vllm;
  int llm_d;
  int dynamo;
  int envoy;
  int vllm_on_eks;             ///< the tenant gateway of that name
  int llm_d_may_2026 = llm_d;  ///< where the May release differs from the August one
};
namespace categories {
inline constexpr ReasonCategory kRateLimited{"rate_limited", 503, 429, 529, 429, 429};
inline constexpr ReasonCategory kSaturated{"saturated", 503, 429, 529, 503, 503};
inline constexpr ReasonCategory kNoCandidate{"saturated", 503, 503, 503, 503, 503};
inline constexpr ReasonCategory kQueueFull{"queue_full", 503, 429, 529, 503, 504};
inline constexpr ReasonCategory kTtlExpired{"ttl_expired", 503, 429, 529, 503, 504, 503};
inline constexpr ReasonCategory kEvictedPriority{"evicted_priority", 503, 429, 529, 503, 503};
inline constexpr ReasonCategory kTimeout{"timeout", 499, 499, 499, 499, 499};  // the client's doing
inline constexpr ReasonCategory kUnservable{"unservable", 400, 400, 400, 400, 400};
// Before the first byte; a stream that has begun breaks off. vLLM is what has failed.
inline constexpr ReasonCategory kInstanceLost{"instance_lost", 502, 503, 500, 503, 503};
// Of the load balancer in front of the gateway; without one the connection is reset or refused.
inline constexpr ReasonCategory kGatewayLost{"gateway_lost", 502, 502, 502, 502, 502};
}  // namespace categories

/// One reason for which a policy rejects or drops a request. A policy lists its reasons in its
/// configuration struct.
struct Reason {
  std::string_view name;
  ReasonCategory category;
  std::string_view doc;
  /// Settings outside the policy that also decide it, as dotted paths from the root of a
  /// simulation; `[]` stands for every entry of a list.
  std::array<std::string_view, 6> decided_by{};
};

/// The stage to whose closed set of reasons a code refers.
enum class Stage : std::uint8_t { none, admission, queue, ingress, client, router, handoff, fault };

/// A reason as stored per request: the stage, and the position in that stage's closed set.
struct ReasonCode {
  Stage stage = Stage::none;
  std::uint8_t index = 0;
};
/// The reasons of their stage.
inline constexpr ReasonCode kInstanceLost{Stage::fault, 0};
inline constexpr ReasonCode kGatewayLost{Stage::fault, 1};
inline bool is_gateway_lost(ReasonCode code) {
  return code.stage == kGatewayLost.stage && code.index == kGatewayLost.index;
}

// ---- closed set of a stage: the concatenation of its alternatives' reasons, at compile time ----

template <class Policy>
constexpr std::size_t count_reasons() {
  if constexpr (requires { Policy::reasons; }) return std::size(Policy::reasons);
  return 0;
}

/// Reasons of every alternative of a variant, in order.
template <class... Policies>
constexpr auto concat_reasons(std::type_identity<std::variant<Policies...>>) {
  std::array<Reason, (count_reasons<Policies>() + ... + 0)> all{};
  std::size_t next = 0;
  const auto add = [&]<class Policy>(std::type_identity<Policy>) {
    if constexpr (requires { Policy::reasons; }) {
      for (const Reason& reason : Policy::reasons) all[next++] = reason;
    }
  };
  (add(std::type_identity<Policies>{}), ...);
  return all;
}

/// Position in the closed set at which the reasons of alternative `which` begin.
template <class... Policies>
constexpr std::size_t first_reason(std::type_identity<std::variant<Policies...>>,
                                   std::size_t which) {
  const std::array<std::size_t, sizeof...(Policies)> counts{count_reasons<Policies>()...};
  std::size_t first = 0;
  for (std::size_t i = 0; i < which; ++i) first += counts[i];
  return first;
}

}  // namespace spillway::workload
