#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"

namespace spillway::router {

/// What counts as the queue of an instance.
enum class QueueLoad : std::uint8_t { waiting, effective };

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::QueueLoad> {
  static constexpr std::array<std::string_view, 2> names{"waiting", "effective"};
};
