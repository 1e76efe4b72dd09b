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

/// To what the counter of a tenant rises that was idle.
enum class CounterLift : std::uint8_t { min_backlogged, last_departed, max, none };

/// Who has received the fewest tokens per weight. Source: Sheng et al., "Fairness in serving large
/// language models" (OSDI'24) and its artifact.
struct VirtualTokenCounter {
  CounterLift lift = CounterLift::min_backlogged;
  Cost cost{.unit = CostUnit::weighted_tokens, .charge_at = ChargeAt::token};

  static constexpr std::string_view kind = "virtual_token_counter",
                                    type_name = "VirtualTokenCounter";
  static constexpr std::string_view doc =
      "Virtual token counter (VTC): the tenant with the smallest counter of service per weight "
      "goes next. Counters never decay; a tenant that was idle is lifted, so that it has no claim "
      "to what it did not ask for.";
  static void fields(auto field) {
    field("lift", &VirtualTokenCounter::lift,
          "To what the counter of a tenant that was idle rises. min_backlogged: to the smallest "
          "of the other tenants that wait (the paper's artifact). last_departed: the same, and "
          "while nobody waits to that of the tenant whose request left its queue last (the "
          "paper). max: to that of the tenant dispatched last, and while nobody waits to the "
          "largest (a variant of the artifact). none: not at all (least counter first).");
    field("cost", &VirtualTokenCounter::cost, "What advances a tenant's counter, and when.");
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
