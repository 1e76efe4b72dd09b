#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"

namespace spillway::router {

/// What happens to a request of which a filter leaves no instance.
enum class IfNone : std::uint8_t { keep_all, reject };

inline constexpr std::string_view kIfNoneDoc =
    "If it leaves no instance. keep_all: the filter is ignored; reject: the request is rejected "
    "with the reason no_candidate (llm-d: 503).";

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::IfNone> {
  static constexpr std::array<std::string_view, 2> names{"keep_all", "reject"};
};
