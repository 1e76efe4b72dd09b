#pragma once

#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::workload {

class ArrivalProcess;

/// Self-exciting arrivals with an exponential kernel.
struct Hawkes {
  double branching_ratio = 0.5;
  double decay_s = 1;

  static constexpr std::string_view kind = "hawkes", type_name = "Hawkes";
  static constexpr std::string_view doc =
      "Self-exciting arrivals (Hawkes 1971, exponential kernel): every request raises the rate by "
      "branching_ratio / decay_s, which then decays exponentially. A request so triggers "
      "branching_ratio further ones on average, as retries and fan-out do. Over long windows the "
      "variance of the count is 1 / (1 - branching_ratio)² times its mean.";
  static void fields(auto field) {
    field("branching_ratio", &Hawkes::branching_ratio,
          "Mean number of requests that one request triggers directly; 0: Poisson.")
        .dimensionless()
        .range(sim::between(0, 0.99))
        .search(0, 0.95);
    field("decay_s", &Hawkes::decay_s, "Mean time from a request to those that it triggers.")
        .unit("s")
        .range(sim::between(1e-6, 1e9))
        .log_search(0.01, 100);
  }
  static constexpr bool draws() { return true; }
};

/// Precondition: rate_per_s > 0.
std::unique_ptr<ArrivalProcess> make(const Hawkes& config, double rate_per_s);

}  // namespace spillway::workload
