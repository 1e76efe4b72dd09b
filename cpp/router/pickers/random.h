#pragma once

#include <memory>
#include <string_view>

namespace spillway::router {

class Picker;

/// At random.
struct Random {
  static constexpr std::string_view kind = "random", type_name = "Random";
  static constexpr std::string_view doc = "At random, regardless of the scores.";
  static void fields(auto /*field*/) {}
  static constexpr bool draws() { return true; }
};

std::unique_ptr<Picker> make(const Random& config);

}  // namespace spillway::router
