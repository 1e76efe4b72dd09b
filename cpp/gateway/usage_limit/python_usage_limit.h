#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sim/schema/python_policy.h"

namespace spillway::gateway {

class UsageLimitPolicy;

using UsageLimitFactory = sim::PolicyFactory<UsageLimitPolicy, std::span<const std::int64_t>>;

/// A usage limit written in Python.
struct PythonUsageLimit : sim::PythonPolicy<UsageLimitFactory> {
  static constexpr std::string_view type_name = "PythonUsageLimit";
  static constexpr std::string_view doc =
      "A usage limit written in Python (spillway.policies.UsageLimit).";
};

/// `priorities`: those of the bands, highest first.
std::unique_ptr<UsageLimitPolicy> make(const PythonUsageLimit& config,
                                       std::span<const std::int64_t> priorities);

}  // namespace spillway::gateway
