#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace spillway::gateway {

class UsageLimitPolicy;

/// Lowers the ceilings of lower bands as the fleet fills; bands past their ceilings still trickle.
struct SoftReflective {
  static constexpr std::string_view kind = "soft_reflective", type_name = "SoftReflective";
  static constexpr std::string_view doc =
      "At saturation s the i-th of N bands, from 0, has the ceiling 1 − i·s / (N − 1). A band past "
      "its ceiling still opens at every round(s / (1 − s))-th drain at which any band is past its "
      "ceiling; from s = 1 on all bands are closed (llm-d's soft-reflective-ceiling, whose drains "
      "dispatch one request: dispatch: one_per_attempt, or, as since 0.9, one_per_cycle, whose "
      "cycles count even if no request waits).";
  static void fields(auto /*field*/) {}
};

/// `priorities`: those of the bands, highest first.
std::unique_ptr<UsageLimitPolicy> make(const SoftReflective& config,
                                       std::span<const std::int64_t> priorities);

}  // namespace spillway::gateway
