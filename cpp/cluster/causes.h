#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cluster/config.h"
#include "cluster/output.h"
#include "instance/step_loop/step_log.h"

namespace spillway::cluster {

/// What a request spent its time on.
enum class Cause : std::uint8_t {
  client,             ///< earlier attempts, and pauses before the last one
  admission,          ///< from its arrival to a queue of the gateway
  gateway_queue,      ///< in the queues of the gateway
  ingress,            ///< from its dispatch to the queue of the engine
  step_under_way,     ///< until the scheduler first looked at it, or between two steps
  seats,              ///< for a place in the batch
  kv_memory,          ///< for KV memory
  token_budget,       ///< for tokens of a step
  prefill_own,        ///< in steps with tokens of its own prompt
  handoff,            ///< from the end of its prefill leg to its transfer
  transfer,           ///< of its KV blocks to the decode pool
  prefill_of_others,  ///< what prompts of others added to its steps
  decode,             ///< the rest of its steps
  lockstep,           ///< what other ranks added to them
  preemption,         ///< in the queue again, after a preemption
  recomputation,      ///< in steps that computed again what a preemption had discarded
  service,            ///< on a server without steps
  failure,            ///< for an instance that has failed, and to be served again as far as before
};

constexpr std::array<std::string_view, 18> kCauses{
    "client",        "admission",         "gateway_queue", "ingress",     "step_under_way",
    "seats",         "kv_memory",         "token_budget",  "prefill_own", "handoff",
    "transfer",      "prefill_of_others", "decode",        "lockstep",    "preemption",
    "recomputation", "service",           "failure"};

/// Nanoseconds by cause.
using CauseTimes = std::array<std::int64_t, kCauses.size()>;

/// What an engine spent its time on, in nanoseconds.
struct EngineTimes {
  std::int64_t prefill = 0;
  std::int64_t decode = 0;
  std::int64_t lockstep = 0;
};

struct TimeByCause {
  std::vector<CauseTimes> requests;  ///< those that completed; zeros for all others
  std::vector<EngineTimes> engines;
};

/// The times of a run by cause. Those of a request add up to its latency since its first arrival. A
/// wait belongs to the first check of the scheduler that refused: the budget of tokens, memory
/// after a preemption, seats, memory. To a failure belongs the time in which the instance where the
/// attempt is, or to which it has been sent, does not serve; and, of one that goes on elsewhere,
/// all from when it leaves its instance until the end of the step after which it has as many tokens
/// in memory as it has lost with instances, or, if none, until it joins a queue; and, of one whose
/// prefill leg was sent again, all from its dispatch until its last try joins a queue.
/// Preconditions: timestamps are those of the clock, and the output has its requests.
TimeByCause time_by_cause(const Simulation& simulation, const Output& output,
                          const std::vector<instance::StepLog>& logs);

}  // namespace spillway::cluster
