#pragma once

#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::workload {

class ArrivalProcess;

/// Weibull-distributed gaps whose shape is solved from the coefficient of variation.
struct Weibull {
  double cv = 1;

  static constexpr std::string_view kind = "weibull", type_name = "Weibull";
  static constexpr std::string_view doc =
      "Weibull-distributed gaps of a given coefficient of variation: above 1 burstier than "
      "Poisson, below 1 smoother.";
  static void fields(auto field) {
    field("cv", &Weibull::cv, "Coefficient of variation of the gaps.")
        .dimensionless()
        .range(sim::between(0.02, 10))
        .search(0.5, 4);
  }
  static constexpr bool draws() { return true; }
};

/// Precondition: rate_per_s > 0.
std::unique_ptr<ArrivalProcess> make(const Weibull& config, double rate_per_s);

}  // namespace spillway::workload
