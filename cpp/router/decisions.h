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

/// The destination of a request.
struct Target {
  sim::InstanceId instance;
  std::size_t rank = 0;
};

/// An instance, or one of its ranks, as a decision saw it.
struct Candidate {
  std::int32_t instance = -1;  ///< −1: no further candidate
  std::int32_t rank = -1;      ///< −1: the whole instance was scored
  double score = 0;
  // Of the instance:
  std::int32_t waiting = 0;
  std::int32_t running = 0;
  std::int32_t in_flight = 0;
  double kv_utilization = 0;
  sim::Time measured{0};  ///< when its metrics were measured
};

/// One routing decision.
struct Decision {
  std::uint32_t row = 0;  ///< of the request
  sim::Time at;
  Target chosen;
  double score = 0;         ///< of the chosen one
  double regret = 0;        ///< best score − chosen score
  bool is_prefill = false;  ///< with pools: of the prefill pool
};

/// The routing decisions, with the best alternatives and their signals. The score is the policy's
/// own; for a policy without scores, minus the effective load; for an instance that a filter
/// removed, minus infinity.
///
/// Regret compares the scores that the policy saw, not the outcomes of the request: a policy that
/// takes the best score has none.
class DecisionLog {
 public:
  DecisionLog() = default;
  /// Keeps up to `candidates` of each decision, of at most `most` possible ones; 0: keeps no log.
  /// `has_pools`: decisions are of one of two pools.
  DecisionLog(std::size_t candidates, std::size_t most, bool has_pools = false)
      : per_decision_(std::min(candidates, most)), has_pools_(has_pools) {}

  bool is_kept() const { return per_decision_ > 0; }
  /// `by_rank`: `scores` has one value per rank.
  void add(const signals::RequestView& request, const signals::View& view,
           std::span<const double> scores, bool by_rank, Target chosen, sim::Time now);
  /// The decision that was added last is of the prefill pool.
  void mark_prefill() {
    if (is_kept()) decisions_.back().is_prefill = true;
  }

  /// Number of candidates per decision: as configured, or all possible ones.
  std::size_t candidates_per_decision() const { return per_decision_; }
  bool has_pools() const { return has_pools_; }
  const std::vector<Decision>& decisions() const { return decisions_; }
  /// The best candidates of each decision, by score, then in order of the fleet.
  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  std::size_t per_decision_ = 0;
  bool has_pools_ = false;
  std::vector<Decision> decisions_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> all_;  // kept for its memory
};

}  // namespace spillway::router
