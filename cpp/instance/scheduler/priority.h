#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"

namespace spillway::instance {

/// The priority of a request in a scheduler.
enum class Priority : std::uint8_t { slo_class, constant, age, inverted_age };

inline constexpr std::string_view kPriorityDoc =
    "slo_class: the priority of the request's class; constant: the same for all; age: more urgent "
    "the longer it has waited; inverted_age: the opposite.";

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::Priority> {
  static constexpr std::array<std::string_view, 4> names{"slo_class", "constant", "age",
                                                         "inverted_age"};
};
