#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::instance {

/// A call of the scheduler that gave tokens or preempted a request, and the step that it led to.
struct ScheduledStep {
  sim::Time planned{0};
  sim::Time start = sim::kUnset;  ///< unset: no request got a token
  sim::Time end = sim::kUnset;
  std::vector<std::pair<sim::RequestId, std::int64_t>> scheduled;  ///< tokens, in order of entry
  /// Requests that joined the batch, and their cached tokens: those that had not been preempted
  /// before, then the others.
  std::vector<std::pair<sim::RequestId, std::int64_t>> admitted;
  std::vector<std::pair<sim::RequestId, std::int64_t>> readmitted;
  std::vector<sim::RequestId> preempted;
  std::vector<std::pair<sim::RequestId, std::int64_t>> drafts;  ///< of the tokens
  std::int64_t free_blocks = 0;                                 ///< after the call, as the next two
  std::int64_t waiting = 0;
  std::vector<sim::RequestId> running;
  std::vector<sim::RequestId> finished;  ///< with the step
  std::vector<sim::RequestId> prompts;   ///< with tokens of their prompt, or recomputed ones
  sim::Time alone{0};            ///< duration of the step, which ranks in lockstep may prolong
  sim::Time without_prompts{0};  ///< that of the same batch without those tokens
};

/// The calls of one engine's scheduler, in order.
using StepLog = std::vector<ScheduledStep>;

}  // namespace spillway::instance
