#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class LimitPolicy;

/// A limit on unfinished requests and one on requests that await their first token.
struct DualLimit {
  std::int64_t max_in_flight = 10000;
  std::int64_t max_awaiting_first_token = 10000;

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
  }
  static constexpr signals::Needs needs{.first_tokens = true};
};

std::unique_ptr<LimitPolicy> make(const DualLimit& config);

}  // namespace spillway::gateway
