#pragma once

#include <cstddef>
#include <span>

#include "sim/rng.h"

namespace spillway::router {

/// Contract of a picker: which of the scored instances is taken? Scores are ≥ 0, one per instance.
/// Draws come from `draws` alone, which belongs to this one decision.
class Picker {
 public:
  virtual ~Picker() = default;
  virtual std::size_t pick(std::span<const double> scores, sim::Draws& draws) const = 0;
};

}  // namespace spillway::router
