#pragma once

#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::workload {

class ArrivalProcess;

/// Gamma-distributed gaps: shape 1/cv², so cv > 1 is burstier than Poisson.
struct Gamma {
  double cv = 1;

  static constexpr std::string_view kind = "gamma", type_name = "Gamma";
  static constexpr std::string_view doc =
      "Gamma-distributed gaps of a given coefficient of variation: above 1 burstier than Poisson, "
      "below 1 smoother.";
  static void fields(auto field) {
    field("cv", &Gamma::cv, "Coefficient of variation of the gaps.")
        .dimensionless()
        .range(sim::between(0.001, 10))
        .search(0.5, 4);
  }
  static constexpr bool draws() { return true; }
};

/// Precondition: rate_per_s > 0.
std::unique_ptr<ArrivalProcess> make(const Gamma& config, double rate_per_s);

}  // namespace spillway::workload
