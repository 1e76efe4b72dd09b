#include "metrics/latencies.h"

#include <algorithm>
#include <limits>

namespace spillway::metrics {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double since(sim::Time start, sim::Time stamp) {
  return sim::is_set(stamp) ? static_cast<double>((stamp - start).ns) : kNone;
}

}  // namespace

Latencies latencies_of(std::size_t row, const workload::RequestTable& requests,
                       const workload::Journal& journal, Accounting accounting) {
  const sim::Time arrival = requests.source->arrival[row];
  const bool completed = journal.outcome[row] == workload::Outcome::completed;
  const std::int32_t gaps = std::max(requests.source->output_tokens[row] - 1, 0);

  Latencies result{.ttft_ns = since(arrival, journal.first_token[row]),
                   .e2e_ns = completed ? since(arrival, journal.finished[row]) : kNone,
                   .tpot_ns = kNone,
                   .itl_mean_ns = kNone,
                   .queue_ns = since(arrival, journal.dispatched[row]),
                   .scheduling_delay_ns = since(arrival, journal.scheduled[row])};
  if (accounting == Accounting::blis && sim::is_set(journal.first_token[row])) {
    const double decode = static_cast<double>(journal.reported_decode[row].ns);
    result.ttft_ns = static_cast<double>(journal.reported_ttft[row].ns);
    if (completed) {
      result.e2e_ns = result.ttft_ns + decode;
      result.itl_mean_ns = decode / std::max(gaps, 1);
    }
  }
  if (completed && gaps > 0) {
    result.tpot_ns = (result.e2e_ns - result.ttft_ns) / gaps;
    if (accounting == Accounting::clock) result.itl_mean_ns = result.tpot_ns;
  }
  return result;
}

}  // namespace spillway::metrics
