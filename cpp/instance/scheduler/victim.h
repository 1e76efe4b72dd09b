#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"

namespace spillway::instance {

/// The victim of a preemption when memory is short.
enum class Victim : std::uint8_t { last, lowest_priority, least_computed };

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::Victim> {
  static constexpr std::array<std::string_view, 3> names{"last", "lowest_priority",
                                                         "least_computed"};
};
