#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"

namespace spillway::gateway {

/// The output length that is counted before it is known.
enum class OutputLength : std::uint8_t { fixed, predicted, max_tokens };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::OutputLength> {
  static constexpr std::array<std::string_view, 3> names{"fixed", "predicted", "max_tokens"};
};
