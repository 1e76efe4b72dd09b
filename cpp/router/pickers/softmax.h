#pragma once

#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::router {

class Picker;

/// At random; higher scores are more likely.
struct Softmax {
  double temperature = 0.1;

  static constexpr std::string_view kind = "softmax", type_name = "Softmax";
  static constexpr std::string_view doc =
      "At random with probabilities proportional to exp(score ÷ temperature).";
  static void fields(auto field) {
    field("temperature", &Softmax::temperature,
          "Small values nearly always choose the best; large values choose nearly evenly.")
        .dimensionless()
        .range(sim::positive_up_to(1e6))
        .log_search(0.01, 10);
  }
  static constexpr bool draws() { return true; }
};

std::unique_ptr<Picker> make(const Softmax& config);

}  // namespace spillway::router
