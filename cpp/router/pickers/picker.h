#pragma once

#include <cstddef>
#include <span>

#include "sim/rng.h"

namespace spillway::router {

/// Contract of a picker: which of the scored instances is chosen? Scores are ≥ 0, one per instance.
/// Draws come only from `draws`, which belongs to this decision.
class Picker {
 public:
  virtual ~Picker() = default;
  virtual std::size_t pick(std::span<const double> scores, sim::Draws& draws) const = 0;
};

}  // namespace spillway::router
