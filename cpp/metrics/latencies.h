#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "metrics/config.h"
#include "sim/ids.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::metrics {

/// The latencies of requests, in nanoseconds; NaN where a request has not progressed that far.
/// `clock`: differences of timestamps. `blis`: that simulator's sums, see `instance/README.md`.
class Latencies {
 public:
  Latencies(const workload::RequestTable& requests, const workload::RequestStates& states,
            Accounting accounting)
      : requests_(requests), states_(states), reported_(accounting == Accounting::blis) {}

  [[gnu::always_inline]] double ttft_ns(sim::RequestId id) const {
    const sim::Time first_token = states_.first_token[id.index()];
    if (reported_ && sim::is_set(first_token)) return in_ns(states_.reported_ttft[id.index()]);
    return since_first_arrival(id, first_token);
  }
  [[gnu::always_inline]] double e2e_ns(sim::RequestId id) const {
    if (!is_completed(id)) return kNone;
    if (reported_) return ttft_ns(id) + in_ns(states_.reported_decode[id.index()]);
    return since_first_arrival(id, states_.finished[id.index()]);
  }
  double tpot_ns(sim::RequestId id) const {
    if (!is_completed(id) || num_gaps(id) == 0) return kNone;
    return (e2e_ns(id) - ttft_ns(id)) / num_gaps(id);
  }
  double itl_mean_ns(sim::RequestId id) const {
    if (!reported_) return tpot_ns(id);
    if (!is_completed(id)) return kNone;
    return in_ns(states_.reported_decode[id.index()]) / std::max(num_gaps(id), 1);
  }
  /// Of the last attempt alone.
  double queue_ns(sim::RequestId id) const {
    const sim::Time dispatched = states_.dispatched[id.index()];
    return sim::is_set(dispatched) ? in_ns(dispatched - requests_.arrival(id)) : kNone;
  }
  double scheduling_delay_ns(sim::RequestId id) const {
    return since_first_arrival(id, states_.scheduled[id.index()]);
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  static double in_ns(sim::Time span) { return static_cast<double>(span.ns); }
  double since_first_arrival(sim::RequestId id, sim::Time stamp) const {
    return sim::is_set(stamp) ? in_ns(stamp - requests_.first_arrival(id)) : kNone;
  }
  bool is_completed(sim::RequestId id) const {
    return states_.outcome[id.index()] == workload::Outcome::completed;
  }
  std::int32_t num_gaps(sim::RequestId id) const {
    return std::max(requests_.output_tokens(id) - 1, 0);
  }

  const workload::RequestTable& requests_;
  const workload::RequestStates& states_;
  bool reported_;
};

}  // namespace spillway::metrics
