#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// The highest share of blocks found in the cache.
struct CacheHitRate {
  double weight = 1;

  static constexpr std::string_view kind = "cache_hit_rate", type_name = "CacheHitRate";
  static constexpr std::string_view doc =
      "The share of the KV blocks looked up since the start that were in the cache, as the "
      "instances "
      "report it; 0 before the first one.";
  static void fields(auto field) { add_weight<CacheHitRate>(field); }
};

std::unique_ptr<Scorer> make(const CacheHitRate& config);

}  // namespace spillway::router
