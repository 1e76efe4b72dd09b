#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/range.h"

namespace spillway::router {

class RoutingPolicy;

/// The longest prefix match while loads are balanced, else the least loaded instance.
struct CacheAware {
  double cache_threshold = 0.3;
  std::int64_t balance_abs_threshold = 64;
  double balance_rel_threshold = 1.5;

  static constexpr std::string_view kind = "cache_aware", type_name = "CacheAware";
  static constexpr std::string_view doc =
      "The cache-aware policy of SGLang's router. While the loads are unequal, by both thresholds, "
      "the instance with the least in flight. Otherwise the instance to which the longest "
      "beginning of the prompt was sent before, if that is more than cache_threshold of it, else "
      "the one whose record holds the least (prefix_index). The first of equal ones. Loads count "
      "the requests that this gateway has in flight.";
  static void fields(auto field) {
    field("cache_threshold", &CacheAware::cache_threshold,
          "Share of the prompt above which the longest match decides.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.1, 0.9);
    field("balance_abs_threshold", &CacheAware::balance_abs_threshold,
          "Excess of the largest load over the smallest above which loads can be unequal.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 256);
    field("balance_rel_threshold", &CacheAware::balance_rel_threshold,
          "Multiple of the smallest load above which the largest makes them unequal.")
        .dimensionless()
        .range(sim::between(1, 1e6))
        .log_search(1.01, 8);
  }
  static constexpr signals::Needs needs{.prefix_index = true};
};

std::unique_ptr<RoutingPolicy> make(const CacheAware& config);

}  // namespace spillway::router
