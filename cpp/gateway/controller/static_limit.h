#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace spillway::gateway {

class ControllerPolicy;

/// The limit stays as configured.
struct StaticLimit {
  static constexpr std::string_view kind = "static", type_name = "StaticLimit";
  static constexpr std::string_view doc = "The limit stays as configured; there are no ticks.";
  static void fields(auto /*field*/) {}
  static constexpr bool moves_limits = false;
};

std::unique_ptr<ControllerPolicy> make(const StaticLimit& config, std::uint64_t seed);

}  // namespace spillway::gateway
