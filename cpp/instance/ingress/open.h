#pragma once

#include <string_view>

namespace spillway::instance {

/// Everything enters the engine's queue.
struct Open {
  static constexpr std::string_view kind = "open", type_name = "Open";
  static constexpr std::string_view doc = "Everything enters the engine's queue.";
  static void fields(auto /*field*/) {}
};

}  // namespace spillway::instance
