#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// The part of the prompt that is actually cached there.
struct PrecisePrefixCache {
  double weight = 1;

  static constexpr std::string_view kind = "precise_prefix_cache", type_name = "PrecisePrefixCache";
  static constexpr std::string_view doc =
      "Blocks of the prompt that are actually in the instance's KV memory, scaled between the "
      "minimum and the maximum over the instances; 1 for all if they are equal. KV events reach "
      "the gateway without delay.";
  static void fields(auto field) { add_weight<PrecisePrefixCache>(field); }
};

std::unique_ptr<Scorer> make(const PrecisePrefixCache& config);

}  // namespace spillway::router
