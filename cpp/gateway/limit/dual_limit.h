#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class LimitPolicy;

/// How long a request counts as awaiting its first token.
enum class AwaitedStage : std::uint8_t { first_token, prompt };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::AwaitedStage> {
  static constexpr std::array<std::string_view, 2> names{"first_token", "prompt"};
};

namespace spillway::gateway {

/// A limit on unfinished requests and one on requests that await their first token.
struct DualLimit {
  std::int64_t max_in_flight = 10000;
  std::int64_t max_awaiting_first_token = 10000;
  AwaitedStage until = AwaitedStage::first_token;

  static constexpr std::string_view kind = "dual_limit", type_name = "DualLimit";
  static constexpr std::string_view doc =
      "At most max_in_flight requests between dispatch and last token, of which at most "
      "max_awaiting_first_token have no token yet: prefill concurrency is bounded separately from "
      "streams (the dual-limit gate of a development version of NVIDIA Dynamo). A controller moves "
      "max_in_flight.";
  static void fields(auto field) {
    field("max_in_flight", &DualLimit::max_in_flight,
          "Maximum number of unfinished requests; 0: nothing is dispatched.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 4096)
        .runtime();
    field("max_awaiting_first_token", &DualLimit::max_awaiting_first_token,
          "Maximum number of requests without a first token; 0: nothing is dispatched.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 1024)
        .runtime();
    field("until", &DualLimit::until,
          "Up to when max_awaiting_first_token counts a request. first_token; prompt: with prefill "
          "and decode pools, until the prefill pool has computed its prompt, so that one permit is "
          "of the prefill stage alone and the other of both.");
  }
  static constexpr signals::Needs needs{.first_tokens = true};
};

std::unique_ptr<LimitPolicy> make(const DualLimit& config);

}  // namespace spillway::gateway
