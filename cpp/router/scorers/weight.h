#pragma once

#include "sim/schema/range.h"

namespace spillway::router {

/// The field common to all scorers.
template <class Config>
void add_weight(auto field) {
  field("weight", &Config::weight, "Weight of the scorer, relative to the sum of all weights.")
      .dimensionless()
      .range(sim::positive_up_to(1e9))
      .log_search(0.1, 10)
      .runtime();
}

}  // namespace spillway::router
