#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>

#include "gateway/controller/controller.h"
#include "sim/field.h"

namespace spillway::gateway {

/// The limit stays as configured.
struct StaticLimit {
  static constexpr std::string_view kind = "static", type_name = "StaticLimit";
  static constexpr std::string_view doc = "The limit stays as configured; there are no ticks.";
  static constexpr auto fields() { return std::tuple(); }
};

std::unique_ptr<ControllerPolicy> make(const StaticLimit& config, std::uint64_t seed);

}  // namespace spillway::gateway
