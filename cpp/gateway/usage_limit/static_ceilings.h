#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace spillway::gateway {

class UsageLimitPolicy;

/// Each band has its configured ceiling.
struct StaticCeilings {
  static constexpr std::string_view kind = "static", type_name = "StaticCeilings";
  static constexpr std::string_view doc = "Each band has its configured ceiling.";
  static void fields(auto /*field*/) {}
};

/// `priorities`: those of the bands, highest first.
std::unique_ptr<UsageLimitPolicy> make(const StaticCeilings& config,
                                       std::span<const std::int64_t> priorities);

}  // namespace spillway::gateway
