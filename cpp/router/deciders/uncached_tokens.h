#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Decider;

/// Long uncached prompts are computed in the prefill pool.
struct UncachedTokens {
  std::int64_t min_uncached_tokens = 16;
  std::int64_t min_prompt_tokens = 0;

  static constexpr std::string_view kind = "uncached_tokens", type_name = "UncachedTokens";
  static constexpr std::string_view doc =
      "llm-d's prefix-based-pd-decider: a prompt is computed in the prefill pool if it has at "
      "least "
      "min_prompt_tokens and at least min_uncached_tokens without those that the gateway has "
      "sent to the chosen decode instance before. Requires disaggregation.order: decode_first.";
  static void fields(auto field) {
    field("min_uncached_tokens", &UncachedTokens::min_uncached_tokens,
          "Minimum number of uncached prompt tokens (llm-d nonCachedTokens); 0: no prompt is "
          "computed in the prefill pool.")
        .unit("tokens")
        .range(sim::between(0, 1e9))
        .log_search(16, 8192);
    field("min_prompt_tokens", &UncachedTokens::min_prompt_tokens,
          "Minimum number of prompt tokens, cached or not (llm-d promptTokens).")
        .unit("tokens")
        .range(sim::between(0, 1e9));
  }
  static constexpr signals::Needs needs{.prefix_index = true};
};

std::unique_ptr<Decider> make(const UncachedTokens& config);

}  // namespace spillway::router
