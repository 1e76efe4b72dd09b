#pragma once

#include <memory>
#include <string_view>

namespace spillway::router {

class Picker;

/// At random with probabilities proportional to the scores.
struct WeightedRandom {
  static constexpr std::string_view kind = "weighted_random", type_name = "WeightedRandom";
  static constexpr std::string_view doc =
      "At random with probabilities proportional to the scores; evenly if all are 0.";
  static void fields(auto /*field*/) {}
  static constexpr bool draws() { return true; }
};

std::unique_ptr<Picker> make(const WeightedRandom& config);

}  // namespace spillway::router
