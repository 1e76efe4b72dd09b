#pragma once

#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Filter;

/// Keeps requests at the instances to which most of their prompt was sent before.
struct PrefixCacheAffinity {
  double threshold = 0.8;
  double exploration = 0.01;

  static constexpr std::string_view kind = "prefix_cache_affinity",
                                    type_name = "PrefixCacheAffinity";
  static constexpr std::string_view doc =
      "Keeps the instances to which at least `threshold` of the prompt was sent before, by the "
      "gateway's own record; all instances if there is none (llm-d's prefix-cache-affinity-filter, "
      "without its comparison of predicted latencies).";
  static void fields(auto field) {
    field("threshold", &PrefixCacheAffinity::threshold,
          "Minimum share of the prompt's full blocks.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.1, 1);
    field("exploration", &PrefixCacheAffinity::exploration,
          "Probability that a request is not filtered.")
        .dimensionless()
        .range(sim::between(0, 1));
  }
  bool draws() const { return exploration > 0; }
  static constexpr signals::Needs needs{.prefix_index = true};
};

std::unique_ptr<Filter> make(const PrefixCacheAffinity& config);

}  // namespace spillway::router
