#pragma once

#include "sim/schema/range.h"

namespace spillway::router {

/// The field that every scorer has.
template <class Config>
void add_weight(auto field) {
  field("weight", &Config::weight, "Weight of the scorer, relative to the others' sum.")
      .dimensionless()
      .range(sim::positive_up_to(1e9))
      .log_search(0.1, 10);
}

}  // namespace spillway::router
