#pragma once

#include "metrics/config.h"
#include "workload/requests.h"

namespace spillway::metrics {

/// The latencies of one request, in nanoseconds; NaN where it has not come that far.
struct Latencies {
  double ttft_ns;
  double e2e_ns;
  double tpot_ns;
  double itl_mean_ns;
  double queue_ns;
  double scheduling_delay_ns;
};

/// `clock`: differences of stamps. `blis`: that simulator's sums, see `instance/README.md`.
Latencies latencies_of(std::size_t row, const workload::RequestTable& requests,
                       const workload::Journal& journal, Accounting accounting);

}  // namespace spillway::metrics
