#include "metrics/ledger.h"

#include <numeric>

#include "sim/error.h"
#include "sim/value.h"

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

std::vector<std::string> reason_names() {
  std::vector<std::string> names{""};
  for (const workload::Reason& reason : gateway::kAdmissionReasons) {
    names.emplace_back(reason.name);
  }
  for (const workload::Reason& reason : gateway::Queue::reasons) names.emplace_back(reason.name);
  for (const workload::Reason& reason : instance::kWorkerReasons) {
    names.emplace_back(reason.name);
  }
  for (const workload::Reason& reason : workload::Reaction::reasons) {
    names.emplace_back(reason.name);
  }
  for (const workload::Reason& reason : router::kRouterReasons) names.emplace_back(reason.name);
  for (const workload::Reason& reason : router::Disaggregation::reasons) {
    names.emplace_back(reason.name);
  }
  for (const workload::Reason& reason : fleet::Health::reasons) names.emplace_back(reason.name);
  return names;
}

std::uint8_t reason_index(workload::ReasonCode code) {
  constexpr std::size_t first_of_queue = 1 + gateway::kAdmissionReasons.size();
  constexpr std::size_t first_of_worker = first_of_queue + gateway::Queue::reasons.size();
  constexpr std::size_t first_of_client = first_of_worker + instance::kWorkerReasons.size();
  constexpr std::size_t first_of_router = first_of_client + workload::Reaction::reasons.size();
  constexpr std::size_t first_of_handoff = first_of_router + router::kRouterReasons.size();
  constexpr std::size_t first_of_fault = first_of_handoff + router::Disaggregation::reasons.size();
  switch (code.stage) {
    case workload::Stage::admission:
      return static_cast<std::uint8_t>(1 + code.index);
    case workload::Stage::queue:
      return static_cast<std::uint8_t>(first_of_queue + code.index);
    case workload::Stage::ingress:
      return static_cast<std::uint8_t>(first_of_worker + code.index);
    case workload::Stage::client:
      return static_cast<std::uint8_t>(first_of_client + code.index);
    case workload::Stage::router:
      return static_cast<std::uint8_t>(first_of_router + code.index);
    case workload::Stage::handoff:
      return static_cast<std::uint8_t>(first_of_handoff + code.index);
    case workload::Stage::fault:
      return static_cast<std::uint8_t>(first_of_fault + code.index);
    case workload::Stage::none:
      break;
  }
  return 0;
}

const workload::ReasonCategory& category_of(workload::ReasonCode code) {
  switch (code.stage) {
    case workload::Stage::admission:
      return gateway::kAdmissionReasons.at(code.index).category;
    case workload::Stage::queue:
      return gateway::Queue::reasons.at(code.index).category;
    case workload::Stage::ingress:
      return instance::kWorkerReasons.at(code.index).category;
    case workload::Stage::router:
      return router::kRouterReasons.at(code.index).category;
    case workload::Stage::handoff:
      return router::Disaggregation::reasons.at(code.index).category;
    case workload::Stage::fault:
      return fleet::Health::reasons.at(code.index).category;
    case workload::Stage::client:
    case workload::Stage::none:
      break;
  }
  return workload::Reaction::reasons.at(code.index).category;
}

void OutcomeCounts::add(const workload::RequestStates& states, sim::RequestId id, bool is_last) {
  const std::size_t row = id.index();
  const bool admitted = sim::is_set(states.admitted[row]);
  const Outcome outcome = states.outcome[row];
  const workload::ReasonCode reason = states.reason[row];
  requests_ += is_last;
  ++attempts_;
  admitted_ += admitted;
  const bool dispatched = sim::is_set(states.dispatched[row]);
  dispatched_ += dispatched;
  ++outcomes_[static_cast<std::size_t>(outcome)];
  after_dispatch_[static_cast<std::size_t>(outcome)] += dispatched;
  ++by_reason_.at(reason_index(reason));
  if (outcome == Outcome::completed) return;
  const bool is_withdrawn = outcome == Outcome::evicted || outcome == Outcome::cancelled;
  const bool has_failed = outcome == Outcome::failed;
  const bool is_cut = has_failed && workload::is_gateway_lost(reason);
  withdrawn_ += (is_withdrawn || is_cut) && sim::is_set(states.enqueued[row]);
  lost_ += has_failed && !is_cut && sim::is_set(states.enqueued[row]);
  lost_before_ += has_failed && !admitted;
  lost_queued_ += has_failed && admitted && !dispatched;
  at_admission_ += outcome == Outcome::in_transit && !admitted;
  if (outcome != Outcome::rejected) return;
  switch (reason.stage) {
    case workload::Stage::admission:
      ++rejected_.at(reason.index);
      break;
    case workload::Stage::queue:
      ++rejected_by_queue_.at(reason.index);
      break;
    case workload::Stage::router:
      ++router_rejected_.at(reason.index);
      break;
    case workload::Stage::handoff:
      ++handoff_rejected_.at(reason.index);
      break;
    default:
      ++worker_rejected_.at(reason.index);
  }
}

std::map<std::string, std::int64_t> OutcomeCounts::by_reason() const {
  const std::vector<std::string> names = reason_names();
  std::map<std::string, std::int64_t> counts;
  for (std::size_t i = 1; i < names.size(); ++i) {
    if (by_reason_[i] > 0) counts.emplace(names[i], by_reason_[i]);
  }
  return counts;
}

namespace {

// A decode leg enters its instance's batch with its prompt.
void balance(const LegCounts& legs, const FleetCounts& fleet) {
  const LegLosses losses = legs.losses.value_or(LegLosses{});
  require_equal(legs.prefill_entered,
                legs.prefill_ended + legs.prefill_withdrawn + losses.prefill + legs.prefill_inside,
                "prefill legs entered = ended + withdrawn + lost + inside");
  require_equal(legs.prefill_ended, fleet.handed_over,
                "prefill legs ended = those that the instances handed over");
  require_equal(legs.decode_entered,
                legs.transfers_ended + legs.decode_withdrawn + losses.decode + legs.decode_waiting,
                "decode legs entered = prompts arrived + withdrawn + lost + waiting");
  require_equal(legs.transfers_begun,
                legs.transfers_ended + legs.transfers_cut + legs.transfers_under_way,
                "transfers begun = ended + cut + under way");
}

}  // namespace

Ledger balance(const OutcomeCounts& counts, const gateway::GatewayCounters& counters,
               std::int64_t queued, const FleetCounts& fleet) {
  const auto count_of = [&](Outcome outcome) {
    return counts.outcomes_[static_cast<std::size_t>(outcome)];
  };
  const auto in_flight = [&](Outcome outcome) {
    return counts.after_dispatch_[static_cast<std::size_t>(outcome)];
  };
  Ledger ledger;
  ledger.logical_requests = counts.requests_;
  ledger.attempts = counts.attempts_;
  ledger.at_admission = counts.at_admission_;
  ledger.admitted = counts.admitted_;
  ledger.queued = count_of(Outcome::queued);
  ledger.dispatched = counts.dispatched_;
  ledger.expired = count_of(Outcome::expired);
  ledger.evicted = count_of(Outcome::evicted);
  ledger.cancelled = count_of(Outcome::cancelled);
  ledger.evicted_in_flight = in_flight(Outcome::evicted);
  ledger.cancelled_in_flight = in_flight(Outcome::cancelled);
  ledger.completed_in_vain = fleet.in_vain;
  ledger.in_transit = count_of(Outcome::in_transit) - counts.at_admission_;
  ledger.running = count_of(Outcome::running);
  ledger.completed = count_of(Outcome::completed);
  ledger.failed = count_of(Outcome::failed);
  ledger.failed_at_admission = counts.lost_before_;
  ledger.failed_in_queue = counts.lost_queued_;
  for (std::size_t i = 0; i < counts.rejected_.size(); ++i) {
    if (counts.rejected_[i] == 0) continue;
    ledger.rejected.emplace(gateway::kAdmissionReasons.at(i).name, counts.rejected_[i]);
  }
  for (std::size_t i = 0; i < counts.rejected_by_queue_.size(); ++i) {
    if (counts.rejected_by_queue_[i] == 0) continue;
    ledger.rejected.emplace(gateway::Queue::reasons.at(i).name, counts.rejected_by_queue_[i]);
  }
  for (std::size_t i = 0; i < counts.worker_rejected_.size(); ++i) {
    if (counts.worker_rejected_[i] == 0) continue;
    ledger.worker_rejected.emplace(instance::kWorkerReasons.at(i).name, counts.worker_rejected_[i]);
  }
  for (std::size_t i = 0; i < counts.router_rejected_.size(); ++i) {
    if (counts.router_rejected_[i] == 0) continue;
    ledger.router_rejected.emplace(router::kRouterReasons.at(i).name, counts.router_rejected_[i]);
  }

  for (std::size_t i = 0; i < counts.handoff_rejected_.size(); ++i) {
    if (counts.handoff_rejected_[i] == 0) continue;
    ledger.handoff_rejected.emplace(router::Disaggregation::reasons.at(i).name,
                                    counts.handoff_rejected_[i]);
  }
  ledger.legs = fleet.legs;
  ledger.migrations = fleet.migrations;

  // A request that left a queue without being dispatched counts only here, so the two groups do not
  // overlap.
  require_equal(
      ledger.attempts,
      ledger.at_admission + ledger.admitted + total(ledger.rejected) + ledger.failed_at_admission,
      "attempts = at_admission + admitted + rejected + failed at admission");
  const std::int64_t evicted_in_queue = ledger.evicted - ledger.evicted_in_flight;
  const std::int64_t cancelled_in_queue = ledger.cancelled - ledger.cancelled_in_flight;
  require_equal(ledger.admitted,
                ledger.queued + ledger.dispatched + ledger.expired + evicted_in_queue +
                    cancelled_in_queue + ledger.failed_in_queue,
                "admitted = queued + dispatched + expired + evicted + cancelled + failed in queue");
  require_equal(ledger.dispatched,
                ledger.in_transit + ledger.running + ledger.completed + in_flight(Outcome::failed) +
                    ledger.evicted_in_flight + ledger.cancelled_in_flight +
                    total(ledger.worker_rejected) + total(ledger.router_rejected) +
                    total(ledger.handoff_rejected),
                "dispatched = in_transit + running + completed + failed + evicted + cancelled + "
                "worker_rejected + router_rejected + handoff_rejected");

  // Checks against the stages' own counts.
  require_equal(ledger.attempts, counters.attempts, "attempts = arrivals at the gateway");
  require_equal(ledger.admitted, counters.admitted, "admitted = admissions of the gateway");
  require_equal(total(ledger.rejected), counters.rejected, "rejected = rejections of the gateway");
  require_equal(ledger.expired, counters.expired, "expired = time-outs of the gateway");
  require_equal(ledger.failed_at_admission, counters.lost_before,
                "failed at admission = those that a crashed gateway did not admit");
  require_equal(ledger.failed_in_queue, counters.lost,
                "failed in a queue = those in the queues of a crashed gateway");
  require_equal(evicted_in_queue, counters.evicted, "evicted = evictions of the gateway");
  require_equal(cancelled_in_queue, counters.withdrawn,
                "cancelled in a queue = withdrawals from the gateway");
  require_equal(ledger.evicted_in_flight, counters.reclaimed,
                "evicted in flight = victims whose permits returned to the gateway");
  require_equal(ledger.dispatched, counters.dispatched, "dispatched = dispatches of the gateway");
  require_equal(ledger.queued, queued, "queued = length of the queues");
  require_equal(ledger.completed, fleet.completed, "completed = completions of the instances");
  require_equal(total(ledger.worker_rejected), fleet.refused,
                "worker_rejected = refusals of the instances");
  const std::int64_t between = fleet.legs ? fleet.legs->withdrawn_between : 0;
  const LegLosses lost = fleet.legs && fleet.legs->losses ? *fleet.legs->losses : LegLosses{};
  require_equal(
      counts.withdrawn_, fleet.cancelled + between - lost.withdrawn + lost.left_already,
      "evicted, cancelled or cut off after entry = withdrawals from the instances, and between "
      "legs");
  const std::int64_t gone_on = lost.gone_on + (fleet.migrations ? fleet.migrations->left : 0);
  require_equal(counts.lost_ + gone_on,
                fleet.lost + lost.between + lost.withdrawn - lost.left_already,
                "failed after entry, or gone on = losses of the instances, and between legs");
  require_equal(
      ledger.completed + ledger.running + fleet.cancelled + fleet.handed_over + fleet.lost,
      fleet.entered,
      "completed + running + withdrawn + handed over + lost = entries to the instances");
  if (fleet.legs) balance(*fleet.legs, fleet);
  return ledger;
}

sim::Value Ledger::to_value() const {
  using sim::Value;
  Value::Map all{{"logical_requests", Value(logical_requests)},
                 {"attempts", Value(attempts)},
                 {"at_admission", Value(at_admission)},
                 {"admitted", Value(admitted)},
                 {"rejected", metrics::to_value(rejected)},
                 {"queued", Value(queued)},
                 {"dispatched", Value(dispatched)},
                 {"expired", Value(expired)},
                 {"evicted", Value(evicted)},
                 {"cancelled", Value(cancelled)},
                 {"evicted_in_flight", Value(evicted_in_flight)},
                 {"cancelled_in_flight", Value(cancelled_in_flight)},
                 {"in_transit", Value(in_transit)},
                 {"running", Value(running)},
                 {"completed", Value(completed)},
                 {"failed", Value(failed)},
                 {"worker_rejected", metrics::to_value(worker_rejected)}};
  if (hedges) {
    all.emplace_back("hedges", Value(hedges->sent));
    all.emplace_back("hedge_wins", Value(hedges->won));
  }
  // Of the few runs whose instances notice late that clients leave.
  if (completed_in_vain > 0) all.emplace_back("completed_in_vain", Value(completed_in_vain));
  // Of the few runs whose gateway crashes.
  if (failed_at_admission > 0) all.emplace_back("failed_at_admission", Value(failed_at_admission));
  if (failed_in_queue > 0) all.emplace_back("failed_in_queue", Value(failed_in_queue));
  // Of the few runs whose router may reject.
  if (!router_rejected.empty()) {
    all.emplace_back("router_rejected", metrics::to_value(router_rejected));
  }
  if (legs) {
    all.emplace_back("handoff_rejected", metrics::to_value(handoff_rejected));
    all.emplace_back("legs", legs->to_value());
  }
  if (migrations) all.emplace_back("migrations", migrations->to_value());
  return all;
}

sim::Value MigrationCounts::to_value() const {
  using sim::Value;
  return Value::Map{{"new_request", Value(new_request)},
                    {"ongoing_request", Value(ongoing_request)}};
}

sim::Value LegLosses::to_value() const {
  using sim::Value;
  Value::Map all{{"prefill", Value(prefill)},
                 {"decode", Value(decode)},
                 {"between", Value(between)},
                 {"withdrawn", Value(withdrawn)},
                 {"left_already", Value(left_already)}};
  if (are_retried) all.emplace_back("prefill_retries", Value(prefill_retries));
  return all;
}

sim::Value LegCounts::to_value() const {
  using sim::Value;
  Value::Map all{{"local", Value(local)},
                 {"prefill_entered", Value(prefill_entered)},
                 {"prefill_ended", Value(prefill_ended)},
                 {"prefill_withdrawn", Value(prefill_withdrawn)},
                 {"prefill_inside", Value(prefill_inside)},
                 {"answered", Value(answered)},
                 {"kept", Value(kept)},
                 {"decode_entered", Value(decode_entered)},
                 {"decode_withdrawn", Value(decode_withdrawn)},
                 {"decode_waiting", Value(decode_waiting)},
                 {"transfers_begun", Value(transfers_begun)},
                 {"transfers_ended", Value(transfers_ended)},
                 {"transfers_cut", Value(transfers_cut)},
                 {"transfers_under_way", Value(transfers_under_way)},
                 {"moved_blocks", Value(moved_blocks)},
                 {"withdrawn_between", Value(withdrawn_between)}};
  if (losses) all.emplace_back("lost", losses->to_value());
  return all;
}

}  // namespace spillway::metrics
