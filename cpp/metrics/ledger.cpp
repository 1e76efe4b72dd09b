#include "metrics/ledger.h"

#include <numeric>

#include "instance/group.h"
#include "sim/error.h"

namespace spillway::metrics {

using workload::Outcome;

namespace {

std::int64_t total(const std::map<std::string, std::int64_t>& by_reason) {
  return std::accumulate(by_reason.begin(), by_reason.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& entry) { return sum + entry.second; });
}

void require_equal(std::int64_t left, std::int64_t right, const char* identity) {
  sim::require(left == right, std::string("requests are not conserved: ") + identity + " (" +
                                  std::to_string(left) + " != " + std::to_string(right) + ")");
}

sim::Value to_value(const std::map<std::string, std::int64_t>& by_reason) {
  sim::Value::Map map;
  for (const auto& [reason, count] : by_reason) map.emplace_back(reason, sim::Value(count));
  return map;
}

}  // namespace

std::string_view reason_name(workload::ReasonCode code) {
  switch (code.stage) {
    case workload::Stage::admission:
      return gateway::kAdmissionReasons.at(code.index).name;
    case workload::Stage::ingress:
      return instance::InstanceGroup::reasons.at(code.index).name;
    case workload::Stage::none:
      break;
  }
  return {};
}

Ledger balance(const workload::Journal& journal, std::size_t offered, const gateway::Books& books,
               std::size_t queued, const FleetCounts& fleet) {
  Ledger ledger;
  ledger.logical_requests = static_cast<std::int64_t>(offered);
  ledger.attempts = static_cast<std::int64_t>(offered);
  for (std::size_t row = 0; row < offered; ++row) {
    const workload::ReasonCode reason = journal.reason[row];
    const bool admitted = sim::is_set(journal.admitted[row]);
    const bool dispatched = sim::is_set(journal.dispatched[row]);
    ledger.admitted += admitted;
    ledger.dispatched += dispatched;
    switch (journal.outcome[row]) {
      case Outcome::completed:
        ++ledger.completed;
        break;
      case Outcome::rejected:
        ++(reason.stage == workload::Stage::admission
               ? ledger.rejected
               : ledger.worker_rejected)[std::string(reason_name(reason))];
        break;
      case Outcome::expired:
        ++ledger.expired;
        break;
      case Outcome::evicted:
        ++ledger.evicted;
        break;
      case Outcome::failed:
        ++ledger.failed;
        break;
      case Outcome::cancelled:
        ++ledger.cancelled;
        break;
      case Outcome::queued:
        ++ledger.queued;
        break;
      case Outcome::running:
        ++ledger.running;
        break;
      case Outcome::in_transit:
        ++(admitted ? ledger.in_transit : ledger.at_admission);
        break;
    }
  }

  // A request that has left a queue unserved counts before its dispatch, so the two groups do not
  // overlap.
  require_equal(ledger.attempts, ledger.at_admission + ledger.admitted + total(ledger.rejected),
                "attempts = at_admission + admitted + rejected");
  require_equal(
      ledger.admitted,
      ledger.queued + ledger.dispatched + ledger.expired + ledger.evicted + ledger.cancelled,
      "admitted = queued + dispatched + expired + evicted + cancelled");
  require_equal(ledger.dispatched,
                ledger.in_transit + ledger.running + ledger.completed + ledger.failed +
                    total(ledger.worker_rejected),
                "dispatched = in_transit + running + completed + failed + worker_rejected");

  // The stages counted for themselves.
  require_equal(ledger.attempts, books.attempts, "attempts = arrivals at the gateway");
  require_equal(ledger.admitted, books.admitted, "admitted = admissions of the gateway");
  require_equal(total(ledger.rejected), books.rejected, "rejected = rejections of the gateway");
  require_equal(ledger.dispatched, books.dispatched, "dispatched = dispatches of the gateway");
  require_equal(ledger.queued, static_cast<std::int64_t>(queued), "queued = length of the queues");
  require_equal(ledger.completed, fleet.completed, "completed = completions of the instances");
  require_equal(total(ledger.worker_rejected), fleet.refused,
                "worker_rejected = refusals of the instances");
  require_equal(ledger.completed + ledger.running, fleet.entered,
                "completed + running = entries to the instances");
  return ledger;
}

sim::Value Ledger::to_value() const {
  using sim::Value;
  return Value::Map{{"logical_requests", Value(logical_requests)},
                    {"attempts", Value(attempts)},
                    {"at_admission", Value(at_admission)},
                    {"admitted", Value(admitted)},
                    {"rejected", metrics::to_value(rejected)},
                    {"queued", Value(queued)},
                    {"dispatched", Value(dispatched)},
                    {"expired", Value(expired)},
                    {"evicted", Value(evicted)},
                    {"cancelled", Value(cancelled)},
                    {"in_transit", Value(in_transit)},
                    {"running", Value(running)},
                    {"completed", Value(completed)},
                    {"failed", Value(failed)},
                    {"worker_rejected", metrics::to_value(worker_rejected)}};
}

}  // namespace spillway::metrics
