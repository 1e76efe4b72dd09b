#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "gateway/fairness/cost.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class FairnessPolicy;

/// Variants of deficit round robin.
enum class DrrSemantics : std::uint8_t { corrected, verbatim };

/// Tenants in turn, each with credit proportional to its weight. Sources: Shreedhar & Varghese,
/// "Efficient fair queuing using deficit round-robin" (SIGCOMM'95); for costs that are charged
/// after dispatch, the modified deficit round robin of the artifact of Sheng et al., "Fairness in
/// serving large language models" (OSDI'24). `verbatim` is the drain loop of a published FastAPI
/// gateway (commits 2dca487 and 0c78403).
struct DeficitRoundRobin {
  double quantum = 1;
  DrrSemantics semantics = DrrSemantics::corrected;
  Cost cost;

  static constexpr std::string_view kind = "deficit_round_robin", type_name = "DeficitRoundRobin";
  static constexpr std::string_view doc =
      "Tenants in turn; each visit credits quantum × weight and serves while the credit lasts. "
      "Unused credit is lost when a tenant's queue becomes empty; debt is kept.";
  static void fields(auto field) {
    field("quantum", &DeficitRoundRobin::quantum,
          "Credit per visit and unit of weight, in the unit of cost. A larger quantum means longer "
          "turns.")
        .dimensionless()
        .range(sim::between(1e-9, 1e12))
        .log_search(1, 10000)
        .runtime();
    field("semantics", &DeficitRoundRobin::semantics,
          "corrected: as published. verbatim: as implemented in a FastAPI gateway. It counts "
          "requests, regardless of cost; the credit of a visit is the integer part of quantum × "
          "weight, at least 1; unused credit is kept while all tenants are idle; and it commits to "
          "a tenant before a permit is free, so no other tenant can overtake.");
    field("cost", &DeficitRoundRobin::cost,
          "Cost of a request. If it is charged at dispatch, a request is served if the credit "
          "covers it; otherwise, while there is any credit.");
  }
};

std::unique_ptr<FairnessPolicy> make(const DeficitRoundRobin& config,
                                     std::span<const double> weights);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::DrrSemantics> {
  static constexpr std::array<std::string_view, 2> names{"corrected", "verbatim"};
};
