#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// The part of the prompt that is really cached there.
struct PrecisePrefixCache {
  double weight = 1;

  static constexpr std::string_view kind = "precise_prefix_cache", type_name = "PrecisePrefixCache";
  static constexpr std::string_view doc =
      "Blocks of the prompt that the instance's KV memory really holds, scaled between the fewest "
      "and the most; 1 for all if they are equal. KV events reach the gateway at once.";
  static void fields(auto field) { add_weight<PrecisePrefixCache>(field); }
};

std::unique_ptr<Scorer> make(const PrecisePrefixCache& config);

}  // namespace spillway::router
