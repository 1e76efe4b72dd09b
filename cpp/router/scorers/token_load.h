#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/needs.h"

namespace spillway::router {

class Scorer;

/// The fewest prompt tokens in flight.
struct TokenLoad {
  double weight = 1;
  double queue_threshold_tokens = 4'194'304;

  static constexpr std::string_view kind = "token_load", type_name = "TokenLoad";
  static constexpr std::string_view doc =
      "1 for an instance without prompt tokens in flight, falling to 0 at queue_threshold_tokens, "
      "those that the request would add included. Tokens that were sent there before do not count "
      "(llm-d's token-load-scorer).";
  static void fields(auto field) {
    add_weight<TokenLoad>(field);
    field("queue_threshold_tokens", &TokenLoad::queue_threshold_tokens,
          "Prompt tokens with a score of 0.")
        .unit("tokens")
        .range(sim::positive_up_to(1e12))
        .log_search(1e4, 1e7);
  }
  static constexpr signals::Needs needs{.prefix_index = true, .in_flight_tokens = true};
};

std::unique_ptr<Scorer> make(const TokenLoad& config);

}  // namespace spillway::router
