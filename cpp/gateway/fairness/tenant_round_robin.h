#pragma once

#include <memory>
#include <span>
#include <string_view>

namespace spillway::gateway {

class FairnessPolicy;

/// Each tenant in turn, one dispatch each. Source: `round-robin-fairness-policy` of llm-d-router
/// @ ebab687.
struct TenantRoundRobin {
  static constexpr std::string_view kind = "round_robin", type_name = "TenantRoundRobin";
  static constexpr std::string_view doc =
      "Each waiting tenant in turn, one dispatch each, regardless of weights and costs (llm-d's "
      "round-robin-fairness-policy). With dispatch: one_per_cycle, turns begin again with the "
      "first "
      "tenant after a cycle that has found the band empty (there, tenants are in alphabetical "
      "order).";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<FairnessPolicy> make(const TenantRoundRobin& config,
                                     std::span<const double> weights);

}  // namespace spillway::gateway
