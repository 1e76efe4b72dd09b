#pragma once

#include <memory>
#include <string_view>

namespace spillway::router {

class Picker;

/// The better of two drawn at random.
struct PowerOfTwo {
  static constexpr std::string_view kind = "power_of_two", type_name = "PowerOfTwo";
  static constexpr std::string_view doc =
      "The better of two distinct instances drawn at random; the first drawn if their scores are "
      "equal.";
  static void fields(auto /*field*/) {}
  static constexpr bool draws() { return true; }
};

std::unique_ptr<Picker> make(const PowerOfTwo& config);

}  // namespace spillway::router
