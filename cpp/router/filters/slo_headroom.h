#pragma once

#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Filter;

/// Prefers instances that are predicted to meet the targets.
struct SloHeadroom {
  double exploration = 0.01;

  static constexpr std::string_view kind = "slo_headroom", type_name = "SloHeadroom";
  static constexpr std::string_view doc =
      "Keeps the instances that are predicted to meet the targets of the request's class or, with "
      "probability `exploration`, the others; all instances if either are none (llm-d's "
      "slo-headroom-tier-filter). Predictions are those of the scorer predicted_latency.";
  static void fields(auto field) {
    field("exploration", &SloHeadroom::exploration,
          "Probability that a request goes to an instance that is not predicted to meet the "
          "targets.")
        .dimensionless()
        .range(sim::between(0, 1));
  }
  bool draws() const { return exploration > 0; }
  static constexpr signals::Needs needs{
      .prefix_index = true, .first_tokens = true, .predictions = true};
};

std::unique_ptr<Filter> make(const SloHeadroom& config);

}  // namespace spillway::router
