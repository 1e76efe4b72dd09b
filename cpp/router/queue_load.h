#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"

namespace spillway::router {

/// The measure of an instance's queue.
enum class QueueLoad : std::uint8_t { waiting, effective };

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::QueueLoad> {
  static constexpr std::array<std::string_view, 2> names{"waiting", "effective"};
};
