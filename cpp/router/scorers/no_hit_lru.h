#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// Cold prompts go where the last cold prompt was longest ago.
struct NoHitLru {
  double weight = 1;

  static constexpr std::string_view kind = "no_hit_lru", type_name = "NoHitLru";
  static constexpr std::string_view doc =
      "0.5 for all if any instance holds a block of the prompt; else the instance that took a cold "
      "prompt longest ago gets 1, the last one 0, in equal steps between. KV events reach the "
      "gateway at "
      "once.";
  static void fields(auto field) { add_weight<NoHitLru>(field); }
};

std::unique_ptr<Scorer> make(const NoHitLru& config);

}  // namespace spillway::router
