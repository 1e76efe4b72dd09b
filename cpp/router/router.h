#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "router/decisions.h"
#include "router/policies.h"
#include "router/policy.h"
#include "signals/follows.h"
#include "signals/needs.h"
#include "signals/online_predictor.h"
#include "signals/outstanding.h"
#include "signals/prefix_index.h"
#include "signals/prefix_index_config.h"
#include "signals/view.h"
#include "sim/ids.h"

namespace spillway::router {

/// Routes dispatched requests to instances and keeps the gateway's own records: the number in
/// flight on each instance (routed and not finished), where prompts were sent, and the requests
/// that await a first token.
class Dispatcher {
 public:
  /// `prefix_index`, `outstanding`, `predictor`: null unless the policy or the gateway reads it;
  /// `log` may be shared.
  Dispatcher(const Router& config, const signals::PrefixIndexConfig& prefix_index_config,
             std::unique_ptr<signals::PrefixIndex> prefix_index,
             std::unique_ptr<signals::Outstanding> outstanding,
             std::unique_ptr<signals::OnlinePredictor> predictor, const signals::Needs& needs,
             std::size_t num_instances, std::uint64_t seed, DecisionLog& log);

  /// The request has joined a queue, from which it will be routed or dropped.
  void admitted(const signals::RequestView& request, const signals::View& view) {
    if (follows_admitted_) note_admitted(request, view);
  }
  void dropped(sim::RequestId id) {
    if (follows_admitted_) note_dropped(id);
  }
  /// The instance that `route` would choose now. A preview does not affect later choices: `pick`
  /// has no effect on other picks, and its draws belong to the request.
  sim::InstanceId preview(const signals::RequestView& request, const signals::View& view,
                          sim::Time now) {
    if (!is_restricted(view)) return pick(request, view, now);
    return pick(request, candidates_of(view), now);
  }
  /// Decides on the target of the request.
  Target decide(const signals::RequestView& request, const signals::View& view, sim::Time now) {
    if (!is_restricted(view)) return decide_among(view, request, now);
    return decide_among(candidates_of(view), request, now);
  }
  /// The same; unset: the policy rejects the request. Where none may, `decide` is cheaper.
  std::optional<Target> decide_or_reject(const signals::RequestView& request,
                                         const signals::View& view, sim::Time now);
  /// Whether the policy may reject a request.
  bool may_reject() const { return policy_->may_reject(); }
  /// The request is sent to the target: from now on it counts there.
  [[gnu::always_inline]] void send(const signals::RequestView& request, const Target& target,
                                   sim::Time now) {
    if (follows_sent_) note_sent(request, target, now);
    if (prefix_index_) {
      prefix_index_->sent(request.id(), target.instance.index(), target.rank);
    }
    ++in_flight_[target.instance.index()];
  }
  void first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) {
    if (follows_requests_) note_first_token(id, instance, now);
    policy_->first_token(id, instance);
  }
  void finished(sim::RequestId id, sim::InstanceId instance, bool is_completed, sim::Time now) {
    if (follows_requests_) note_finished(id, instance, is_completed, now);
    --in_flight_[instance.index()];
    policy_->finished(id, instance);
  }
  /// The instance that `decide` chose gets nothing.
  void take_back(sim::RequestId id, sim::InstanceId instance) { policy_->finished(id, instance); }
  /// With pools: a leg that the router of the other pool has sent to the instance counts here, too
  /// (+1), until it ends (−1).
  void count_elsewhere(sim::InstanceId instance, std::int32_t requests, std::int64_t tokens) {
    in_flight_[instance.index()] += requests;
    if (!in_flight_tokens_.empty()) in_flight_tokens_[instance.index()] += tokens;
  }
  /// The tokens with which the request, which is in flight, counts.
  std::int64_t tokens_of(sim::RequestId id) const {
    return in_flight_tokens_.empty() ? 0 : tokens_of_[id.index()];
  }
  /// With pools: requests have been routed, or have ended.
  void count_routed(std::int64_t requests) { local_.routed += requests; }
  /// Settings have changed. `from`: those in force before.
  void change(const Router& from, const Router& to);
  /// The gateway receives load events, which `busy` reflects.
  void set_busy_workers(const signals::BusyWorkers* busy) { local_.busy = busy; }
  const signals::LocalState& local_state() const { return local_; }

 private:
  static bool is_restricted(const signals::View& view) {
    return view.skips_stale() || view.skips_busy();
  }
  // The view without the instances that are skipped while there are others.
  signals::View candidates_of(const signals::View& view);
  Target decide_among(const signals::View& candidates, const signals::RequestView& request,
                      sim::Time now);
  sim::InstanceId pick(const signals::RequestView& request, const signals::View& candidates,
                       sim::Time now);
  // The policy has picked `chosen`.
  Target settle(const signals::View& candidates, const signals::RequestView& request,
                sim::InstanceId chosen, sim::Time now);
  void note_admitted(const signals::RequestView& request, const signals::View& view);
  void note_dropped(sim::RequestId id);
  void note_sent(const signals::RequestView& request, const Target& target, sim::Time now);
  void note_first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now);
  void note_finished(sim::RequestId id, sim::InstanceId instance, bool is_completed, sim::Time now);
  void count_tokens(sim::RequestId id, sim::InstanceId chosen, std::int64_t tokens);
  // Tokens of its prompt beyond `blocks` blocks that were sent before.
  std::int64_t uncached_tokens(const signals::RequestView& request, std::int64_t blocks) const;
  std::int64_t fewest_uncached_tokens(const signals::RequestView& request) const;

  std::unique_ptr<RoutingPolicy> policy_;
  std::unique_ptr<signals::PrefixIndex> prefix_index_;
  std::unique_ptr<signals::Outstanding> outstanding_;
  std::unique_ptr<signals::OnlinePredictor> predictor_;
  std::uint64_t seed_;
  std::vector<std::int32_t> in_flight_;
  std::vector<std::int64_t> in_flight_tokens_;  // empty unless they are read
  std::vector<std::int64_t> tokens_of_;         // of the requests in flight
  bool follows_admitted_;                       // anything depends on requests that join a queue
  // Whether more than the number in flight depends on requests that are sent, and on what follows.
  bool follows_sent_;
  bool follows_requests_;
  signals::LocalState local_;
  DecisionLog& log_;
  std::vector<sim::InstanceId> candidates_;  // kept for its memory
};

/// The policy that is configured. `block_size_tokens`: of the gateway's prefix index.
std::unique_ptr<RoutingPolicy> make_policy(const Router& config, std::int64_t block_size_tokens);
/// The needs of the policy.
signals::Needs needs_of(const Router& config);
/// The changes of the instances that the policy follows.
signals::Follows follows_of(const Router& config);
/// Whether the policy scores the ranks of the instances and chooses among them.
bool rates_ranks(const Router& config);

}  // namespace spillway::router
