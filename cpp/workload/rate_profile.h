#pragma once

#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::workload {

/// The rate at one time.
struct RatePoint {
  double at_s = 0;
  double factor = 1;

  static constexpr std::string_view type_name = "RatePoint";
  static constexpr std::string_view doc = "A point of a client's rate over time.";
  static void fields(auto field) {
    field("at_s", &RatePoint::at_s, "Time since the client's start_s.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("factor", &RatePoint::factor, "Multiple of the client's rate; 0: no requests.")
        .dimensionless()
        .range(sim::between(0, 1e6));
  }
};

}  // namespace spillway::workload
