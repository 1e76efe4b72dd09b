#include "cluster/statistics.h"

#include <cstddef>

namespace spillway::cluster {

using sim::RequestId;

Statistics::Statistics(const Simulation& simulation, const RequestRecord& record)
    : record_(record),
      streams_(simulation.metrics.streaming),
      collector_(simulation.metrics, record.requests, record.states) {
  if (!streams_ && !simulation.metrics.uses_reported_latencies()) {
    stays_.emplace(record.requests, record.states);
  }
}

void Statistics::retried(RequestId id) {
  outcomes_.add(record_.states, id, false);
  if (stays_) stays_->forget(id);
}

void Statistics::add(RequestId id) {
  outcomes_.add(record_.states, id, true);
  collector_.add(id);
}

void Statistics::add_rest() {
  const std::size_t ids = streams_ ? record_.requests.capacity() : record_.offered;
  for (std::size_t i = 0; i < ids; ++i) {
    if (record_.requests.in_use(RequestId{i})) add(RequestId{i});
  }
}

}  // namespace spillway::cluster
