#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/faults.h"
#include "gateway/pipeline.h"
#include "instance/group.h"
#include "router/disaggregation.h"
#include "router/policies.h"
#include "sim/ids.h"
#include "sim/value.h"
#include "workload/outcome.h"
#include "workload/request_states.h"

namespace spillway::metrics {

/// Legs that were lost with instances, and requests that failed for that.
struct LegLosses {
  std::int64_t prefill = 0;       ///< prefill legs that left the queue or batch of an instance
  std::int64_t decode = 0;        ///< decode legs that left without their prompts
  std::int64_t between = 0;       ///< requests that failed, after entry, outside queues and batches
  std::int64_t withdrawn = 0;     ///< that were withdrawn from the instance that worked on
  std::int64_t left_already = 0;  ///< lost by an instance when their clients had left
  std::int64_t prefill_retries = 0;  ///< of prefill legs, which were sent to their instance again
  std::int64_t gone_on = 0;          ///< those of them that had entered it
  bool are_retried = false;          ///< whether prefill legs may be

  sim::Value to_value() const;
};

/// Counts of the legs of requests in a prefill and a decode pool, and of what moved between them.
struct LegCounts {
  std::int64_t local = 0;  ///< requests that were sent to an instance of the decode pool wholly
  std::int64_t prefill_entered = 0;
  std::int64_t prefill_ended = 0;
  std::int64_t prefill_withdrawn = 0;
  std::int64_t prefill_inside = 0;
  std::int64_t answered = 0;  ///< requests whose only token was that of their prefill legs
  std::int64_t kept = 0;      ///< requests that were continued where their prompts were computed
  std::int64_t decode_entered = 0;
  std::int64_t decode_withdrawn = 0;  ///< without their prompts
  std::int64_t decode_waiting = 0;    ///< for their prompts
  std::int64_t transfers_begun = 0;
  std::int64_t transfers_ended = 0;
  std::int64_t transfers_cut = 0;
  std::int64_t transfers_under_way = 0;
  std::int64_t moved_blocks = 0;
  std::int64_t withdrawn_between = 0;  ///< requests that left between their legs
  std::optional<LegLosses> losses;     ///< unset where instances do not fail

  sim::Value to_value() const;
};

/// Requests that went on at another instance, by what happened at the one before.
struct MigrationCounts {
  std::int64_t new_request = 0;      ///< they reached it in vain
  std::int64_t ongoing_request = 0;  ///< they were inside
  std::int64_t left = 0;             ///< losses of instances that did not end the request

  sim::Value to_value() const;
};

/// Counts of the second copies of hedged requests: those that were sent, and those that had the
/// first token.
struct HedgeCounts {
  std::int64_t sent = 0;
  std::int64_t won = 0;
};

/// The balance of all requests, computed from their outcomes and checked against the stages' own
/// counts.
struct Ledger {
  std::int64_t logical_requests = 0;
  std::int64_t attempts = 0;
  std::int64_t at_admission = 0;
  std::int64_t admitted = 0;
  std::map<std::string, std::int64_t> rejected;  ///< by the gateway's reason
  std::int64_t queued = 0;
  std::int64_t dispatched = 0;
  std::int64_t expired = 0;
  std::int64_t evicted = 0;
  std::int64_t cancelled = 0;
  std::int64_t evicted_in_flight = 0;    ///< the evicted requests that had been dispatched
  std::int64_t cancelled_in_flight = 0;  ///< the cancelled requests that had been dispatched
  std::int64_t completed_in_vain = 0;    ///< those of them that an instance completed all the same
  std::int64_t in_transit = 0;
  std::int64_t running = 0;
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  std::int64_t failed_at_admission = 0;  ///< of the failed ones: before their admission
  std::int64_t failed_in_queue = 0;      ///< of the failed ones: in a queue of the gateway
  std::map<std::string, std::int64_t> worker_rejected;   ///< by the worker's reason
  std::map<std::string, std::int64_t> router_rejected;   ///< by the router's reason
  std::map<std::string, std::int64_t> handoff_rejected;  ///< after their prefill, by the reason
  std::optional<LegCounts> legs;                         ///< unset without pools
  std::optional<MigrationCounts> migrations;             ///< unset where requests do not migrate
  std::optional<HedgeCounts> hedges;                     ///< unset unless clients hedge

  sim::Value to_value() const;
};

/// The instances' own counts, summed.
struct FleetCounts {
  std::int64_t entered = 0;
  std::int64_t refused = 0;
  std::int64_t completed = 0;
  std::int64_t cancelled = 0;
  std::int64_t handed_over = 0;   ///< prefill legs that ended
  std::int64_t lost = 0;          ///< with the instances, which crashed
  std::int64_t in_vain = 0;       ///< of `cancelled`: completed after their clients had left
  std::optional<LegCounts> legs;  ///< unset without pools
  std::optional<MigrationCounts> migrations;  ///< unset where requests do not migrate
};

inline constexpr std::size_t kNumReasons =
    gateway::kAdmissionReasons.size() + gateway::Queue::reasons.size() +
    instance::kWorkerReasons.size() + workload::Reaction::reasons.size() +
    router::kRouterReasons.size() + router::Disaggregation::reasons.size() +
    fleet::Health::reasons.size();

/// Counts of the requests of a run by their status.
class OutcomeCounts {
 public:
  /// `is_last`: the attempt is the request's last one; otherwise its client retries.
  void add(const workload::RequestStates& states, sim::RequestId id, bool is_last);
  /// Number of attempts by the reason for which they were not completed; attempts without a reason
  /// are omitted.
  std::map<std::string, std::int64_t> by_reason() const;

 private:
  friend Ledger balance(const OutcomeCounts&, const gateway::GatewayCounters&, std::int64_t,
                        const FleetCounts&);
  std::int64_t requests_ = 0;
  std::int64_t attempts_ = 0;
  std::int64_t admitted_ = 0;
  std::int64_t dispatched_ = 0;
  std::int64_t at_admission_ = 0;
  std::int64_t lost_before_ = 0;  // failed before their admission
  std::int64_t lost_queued_ = 0;  // failed in a queue of the gateway
  std::int64_t withdrawn_ = 0;  // evicted or cancelled in an instance, or by their gateway's crash
  std::int64_t lost_ = 0;       // failed with an instance
  std::array<std::int64_t, workload::kOutcomeNames.size()> outcomes_{};
  std::array<std::int64_t, workload::kOutcomeNames.size()> after_dispatch_{};
  std::array<std::int64_t, gateway::kAdmissionReasons.size()> rejected_{};
  std::array<std::int64_t, gateway::Queue::reasons.size()> rejected_by_queue_{};  // by a full queue
  std::array<std::int64_t, instance::kWorkerReasons.size()> worker_rejected_{};
  std::array<std::int64_t, router::kRouterReasons.size()> router_rejected_{};
  std::array<std::int64_t, router::Disaggregation::reasons.size()> handoff_rejected_{};
  std::array<std::int64_t, 1 + kNumReasons> by_reason_{};  // as `reason_index` numbers them
};

/// Throws InvariantError if a conservation identity is violated.
Ledger balance(const OutcomeCounts& counts, const gateway::GatewayCounters& counters,
               std::int64_t queued, const FleetCounts& fleet);

/// The names of all reasons; position 0 is "none", an empty name.
std::vector<std::string> reason_names();
/// Position of a reason among them.
std::uint8_t reason_index(workload::ReasonCode code);
/// The category of a reason. Precondition: `code` is one.
const workload::ReasonCategory& category_of(workload::ReasonCode code);

}  // namespace spillway::metrics
