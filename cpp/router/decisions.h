#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::router {

/// Where a request goes.
struct Target {
  sim::InstanceId instance;
  std::size_t rank = 0;
};

/// An instance, or one of its ranks, as a decision saw it.
struct Candidate {
  std::int32_t instance = -1;  ///< −1: there was none, fewer came into question
  std::int32_t rank = -1;      ///< −1: the instance as a whole was rated
  double score = 0;
  // Of the instance:
  std::int32_t waiting = 0;
  std::int32_t running = 0;
  std::int32_t in_flight = 0;
  double kv_utilization = 0;
  sim::Time measured{0};  ///< when what it reports was measured
};

/// One routing decision.
struct Decision {
  std::uint32_t row = 0;  ///< of the request
  sim::Time at;
  Target chosen;
  double score = 0;   ///< of the chosen one
  double regret = 0;  ///< how much better the best score was
};

/// What was decided, what the best alternatives were, and what was seen of them. The score is the
/// policy's own, or minus the effective load for a policy that does not rate; minus infinity for
/// what a filter left out.
///
/// Regret is counterfactual in what the policy saw, not in what became of the request: a policy
/// that takes the best score never regrets.
class DecisionLog {
 public:
  DecisionLog() = default;
  /// `candidates` of each decision are kept, at most, out of up to `most`; 0: nothing is.
  DecisionLog(std::size_t candidates, std::size_t most)
      : per_decision_(std::min(candidates, most)) {}

  bool is_kept() const { return per_decision_ > 0; }
  /// `by_rank`: `scores` has one for each rank.
  void add(const signals::RequestView& request, const signals::View& view,
           std::span<const double> scores, bool by_rank, Target chosen, sim::Time now);

  /// Number of candidates of every decision: as many as asked for, or all that there may be.
  std::size_t candidates_per_decision() const { return per_decision_; }
  const std::vector<Decision>& decisions() const { return decisions_; }
  /// The best ones of each decision, in order of score, then of the fleet.
  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  std::size_t per_decision_ = 0;
  std::vector<Decision> decisions_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> all_;  // kept for its memory
};

}  // namespace spillway::router
