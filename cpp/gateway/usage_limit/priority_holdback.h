#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class UsageLimitPolicy;

/// The variable in which the ceilings are linear.
enum class HoldbackDomain : std::uint8_t { rank, value };

/// Holds part of the fleet back from the lower bands.
struct PriorityHoldback {
  HoldbackDomain domain = HoldbackDomain::rank;
  double min_ceiling = 0.5;
  double max_ceiling = 1;

  static constexpr std::string_view kind = "priority_holdback", type_name = "PriorityHoldback";
  static constexpr std::string_view doc =
      "Ceilings fall linearly from max_ceiling for the highest band to min_ceiling for the lowest, "
      "so that lower bands leave room for higher ones (llm-d's priority-holdback, whose bands are "
      "the priorities that it has seen; here they are the configured ones). A single band has "
      "max_ceiling.";
  static void fields(auto field) {
    const auto ceiling = sim::between(0, 1000);
    field("domain", &PriorityHoldback::domain,
          "Variable in which the ceilings are linear. rank: the positions of the bands; value: "
          "their priorities, which should then equal those of the classes rather than be bounds "
          "far below them.");
    field("min_ceiling", &PriorityHoldback::min_ceiling,
          "Saturation from which the lowest band is closed (llm-d has no default).")
        .dimensionless()
        .range(ceiling)
        .search(0.1, 1);
    field("max_ceiling", &PriorityHoldback::max_ceiling,
          "Saturation from which the highest band is closed.")
        .dimensionless()
        .range(ceiling)
        .search(0.5, 1);
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

/// `priorities`: those of the bands, highest first.
std::unique_ptr<UsageLimitPolicy> make(const PriorityHoldback& config,
                                       std::span<const std::int64_t> priorities);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::HoldbackDomain> {
  static constexpr std::array<std::string_view, 2> names{"rank", "value"};
};
