#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// Cold prompts go to the instance that least recently took one.
struct NoHitLru {
  double weight = 1;
  std::int64_t memory = 1024;

  static constexpr std::string_view kind = "no_hit_lru", type_name = "NoHitLru";
  static constexpr std::string_view doc =
      "0.5 for all if any instance holds a block of the prompt; otherwise from 1 for the instance "
      "that least recently took a cold prompt down to 0 for the most recent one, in equal steps. "
      "KV events reach the gateway without delay.";
  static void fields(auto field) {
    add_weight<NoHitLru>(field);
    field("memory", &NoHitLru::memory,
          "Number of instances whose last cold prompt is remembered, the most recent ones; the "
          "others count as unused (llm-d's lruSize).")
        .unit("instances")
        .range(sim::between(1, 1e9));
  }
};

std::unique_ptr<Scorer> make(const NoHitLru& config);

}  // namespace spillway::router
