#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "gateway/gateway.h"
#include "sim/value.h"
#include "workload/outcome.h"
#include "workload/requests.h"

namespace spillway::metrics {

/// Where every request went. Built from the requests' outcomes, checked against the stages' own
/// counts.
struct Ledger {
  std::int64_t logical_requests = 0;
  std::int64_t attempts = 0;
  std::int64_t at_admission = 0;
  std::int64_t admitted = 0;
  std::map<std::string, std::int64_t> rejected;  ///< by reason of the gateway's admission
  std::int64_t queued = 0;
  std::int64_t dispatched = 0;
  std::int64_t expired = 0;
  std::int64_t evicted = 0;
  std::int64_t cancelled = 0;
  std::int64_t in_transit = 0;
  std::int64_t running = 0;
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  std::map<std::string, std::int64_t> worker_rejected;  ///< by reason of the worker

  sim::Value to_value() const;
};

/// What the instances counted, summed.
struct FleetCounts {
  std::int64_t entered = 0;
  std::int64_t refused = 0;
  std::int64_t completed = 0;
};

/// Counts the first `offered` requests. Throws InvariantError if any identity of conservation is
/// violated.
Ledger balance(const workload::Journal& journal, std::size_t offered, const gateway::Books& books,
               std::size_t queued, const FleetCounts& fleet);

/// The name of a reason, or nothing for none.
std::string_view reason_name(workload::ReasonCode code);

}  // namespace spillway::metrics
