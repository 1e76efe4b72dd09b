#pragma once

#include <cstdint>
#include <span>

#include "metrics/config.h"
#include "sim/time.h"

namespace spillway::metrics {

/// One completed request, as the search for inversions sees it.
struct Served {
  std::int32_t instance;
  std::uint16_t slo_class;
  sim::Time arrival;
  double e2e_ns;
};

/// Pairs of requests of one instance and class of which the earlier took more than twice as long as
/// the later.
std::int64_t count_priority_inversions(std::span<Served> served);

/// Instances whose mean queue is more than twice the mean over all instances; 0 for a single
/// instance.
std::int64_t count_head_of_line_blocking(std::span<const double> mean_waiting);

}  // namespace spillway::metrics
