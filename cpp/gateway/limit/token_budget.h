#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "gateway/output_length.h"
#include "signals/needs.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class LimitPolicy;

/// A maximum of tokens in flight.
struct TokenBudget {
  std::int64_t max_tokens_in_flight = 262144;
  std::int64_t assumed_output_tokens = 0;
  OutputLength output_length = OutputLength::fixed;

  static constexpr std::string_view kind = "token_budget", type_name = "TokenBudget";
  static constexpr std::string_view doc =
      "Requests may start while the prompts in flight and their assumed outputs stay within "
      "max_tokens_in_flight. A request larger than that starts when nothing else is in "
      "flight, unless max_tokens_in_flight is 0. A controller moves max_tokens_in_flight.";
  static void fields(auto field) {
    field("max_tokens_in_flight", &TokenBudget::max_tokens_in_flight,
          "Maximum number of tokens of the whole gateway; 0: nothing is dispatched.")
        .unit("tokens")
        .range(sim::between(0, 1e12))
        .log_search(4096, 1e7)
        .runtime();
    field("assumed_output_tokens", &TokenBudget::assumed_output_tokens,
          "Assumed output length of each request, of which the true one is not known in advance.")
        .unit("tokens")
        .range(sim::between(0, 1e9));
    field("output_length", &TokenBudget::output_length,
          "The assumed output. fixed: assumed_output_tokens; predicted: by length_prediction; "
          "max_tokens: what the request states, or assumed_output_tokens if it states none.");
  }
  signals::Needs needs() const {
    return {.output_lengths = output_length == OutputLength::predicted};
  }
};

std::unique_ptr<LimitPolicy> make(const TokenBudget& config);

}  // namespace spillway::gateway
