#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "gateway/fairness/cost.h"
#include "sim/schema/enum.h"

namespace spillway::gateway {

class FairnessPolicy;

/// How the counter of a returning tenant is lifted.
enum class CounterLift : std::uint8_t { min_backlogged, last_departed, max, none };

/// Serves the tenant that has received the fewest tokens per weight. Source: Sheng et al.,
/// "Fairness in serving large language models" (OSDI'24) and its artifact.
struct VirtualTokenCounter {
  CounterLift lift = CounterLift::min_backlogged;
  Cost cost{.unit = CostUnit::weighted_tokens, .charge_at = ChargeAt::token};

  static constexpr std::string_view kind = "virtual_token_counter",
                                    type_name = "VirtualTokenCounter";
  static constexpr std::string_view doc =
      "Virtual token counter (VTC): the tenant with the smallest counter of service per weight "
      "goes next. Counters never decay; the counter of a returning tenant is lifted, so it has no "
      "claim for the time in which it was idle.";
  static void fields(auto field) {
    field("lift", &VirtualTokenCounter::lift,
          "Lift of the counter of a returning tenant. min_backlogged: to the smallest counter of "
          "the other waiting tenants (the paper's artifact). last_departed: the same; if no other "
          "tenant waits, to the counter of the tenant whose request left its queue last (the "
          "paper). max: to the counter of the tenant dispatched last; if no other tenant waits, to "
          "the largest counter (a variant of the artifact). none: no lift (least counter first).");
    field("cost", &VirtualTokenCounter::cost, "Cost that advances a tenant's counter, and when.");
  }
};

std::unique_ptr<FairnessPolicy> make(const VirtualTokenCounter& config,
                                     std::span<const double> weights);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::CounterLift> {
  static constexpr std::array<std::string_view, 4> names{"min_backlogged", "last_departed", "max",
                                                         "none"};
};
