#pragma once

#include <string_view>
#include <tuple>

#include "sim/field.h"

namespace spillway::instance {

/// Everything enters the engine's queue.
struct Open {
  static constexpr std::string_view kind = "open", type_name = "Open";
  static constexpr std::string_view doc = "Everything enters the engine's queue.";
  static constexpr auto fields() { return std::tuple(); }
};

}  // namespace spillway::instance
