#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"

namespace spillway::router {

/// Choice among equally good instances.
enum class Ties : std::uint8_t { first, random };

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::Ties> {
  static constexpr std::array<std::string_view, 2> names{"first", "random"};
};
