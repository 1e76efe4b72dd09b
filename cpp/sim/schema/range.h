#pragma once

#include <limits>

namespace spillway::sim {

/// Valid values of a number. By default every finite number; NaN and infinities are never valid.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;
  bool max_open = false;

  constexpr bool contains(double x) const {
    return (min_open ? x > min : x >= min) && (max_open ? x < max : x <= max);
  }
};
constexpr Range at_least(double min) { return {.min = min}; }
constexpr Range more_than(double min) { return {.min = min, .min_open = true}; }
constexpr Range between(double min, double max) { return {.min = min, .max = max}; }
constexpr Range positive_up_to(double max) { return {.min = 0, .max = max, .min_open = true}; }
constexpr Range positive_below(double max) {
  return {.min = 0, .max = max, .min_open = true, .max_open = true};
}

}  // namespace spillway::sim
