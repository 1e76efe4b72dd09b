#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace spillway::gateway {

class UsageLimitPolicy;

/// The fuller the fleet, the lower the lower bands' ceilings; what is above them still trickles.
struct SoftReflective {
  static constexpr std::string_view kind = "soft_reflective", type_name = "SoftReflective";
  static constexpr std::string_view doc =
      "At saturation s the i-th of N bands, from 0, has the ceiling 1 − i·s / (N − 1). A band past "
      "its ceiling is open all the same at every round(s / (1 − s))-th drain that finds any band "
      "past its own; from s = 1 on all are closed (llm-d's soft-reflective-ceiling, whose drains "
      "let one request go: dispatch: one_per_attempt).";
  static void fields(auto /*field*/) {}
};

/// `priorities`: those of the bands, highest first.
std::unique_ptr<UsageLimitPolicy> make(const SoftReflective& config,
                                       std::span<const std::int64_t> priorities);

}  // namespace spillway::gateway
