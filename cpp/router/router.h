#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "router/decisions.h"
#include "router/policies.h"
#include "router/policy.h"
#include "signals/needs.h"
#include "signals/outstanding.h"
#include "signals/prefix_index.h"
#include "signals/view.h"
#include "sim/ids.h"

namespace spillway::router {

/// Sends dispatched requests to instances and keeps what a gateway knows of them by itself: how
/// many are in flight on each, routed and not yet finished, which prompts went where, and what
/// awaits its first token.
class Dispatcher {
 public:
  /// `prefix_index`, `outstanding`: null unless the policy or the gateway reads it; `log` may be
  /// shared.
  Dispatcher(const Router& config, const signals::PrefixIndexConfig& prefix_index_config,
             std::unique_ptr<signals::PrefixIndex> prefix_index,
             std::unique_ptr<signals::Outstanding> outstanding, std::size_t num_instances,
             std::uint64_t seed, DecisionLog& log);

  /// It has joined a queue, whence it will be routed or lost.
  void admitted(const signals::RequestView& request) {
    if (outstanding_) outstanding_->admitted(request.id(), fewest_uncached_tokens(request));
  }
  void dropped(sim::RequestId id) {
    if (outstanding_) outstanding_->left_queue(id);
  }
  /// Which instance `route` would choose now. No later choice depends on whether it was asked: a
  /// policy's `pick` has no effect on others, and its draws belong to the request.
  sim::InstanceId preview(const signals::RequestView& request, const signals::View& view,
                          sim::Time now) {
    return pick(request, candidates_of(view), now);
  }
  Target route(const signals::RequestView& request, const signals::View& view, sim::Time now);
  void first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) {
    if (outstanding_) outstanding_->first_token(id, instance, now);
    policy_->first_token(id, instance);
  }
  void finished(sim::RequestId id, sim::InstanceId instance, sim::Time now) {
    --in_flight_[instance.index()];
    if (outstanding_) outstanding_->ended(id, instance, now);
    policy_->finished(id, instance);
  }
  signals::LocalState local_state() const {
    return {in_flight_, prefix_index_.get(), outstanding_.get()};
  }

 private:
  // The view without the instances that get no requests while there are others.
  signals::View candidates_of(const signals::View& view);
  sim::InstanceId pick(const signals::RequestView& request, const signals::View& candidates,
                       sim::Time now);
  // Of its prompt: what is left but for so many blocks that were sent before.
  std::int64_t uncached_tokens(const signals::RequestView& request, std::int64_t blocks) const;
  std::int64_t fewest_uncached_tokens(const signals::RequestView& request) const;

  std::unique_ptr<RoutingPolicy> policy_;
  std::unique_ptr<signals::PrefixIndex> prefix_index_;
  std::unique_ptr<signals::Outstanding> outstanding_;
  std::uint64_t seed_;
  std::vector<std::int32_t> in_flight_;
  DecisionLog& log_;
  std::vector<sim::InstanceId> candidates_;  // kept for its memory
};

/// The policy that is configured. `block_size_tokens`: of the gateway's prefix index.
std::unique_ptr<RoutingPolicy> make_policy(const Router& config, std::int64_t block_size_tokens);
/// What the policy needs to see.
signals::Needs needs_of(const Router& config);
/// Whether the policy rates the ranks of the instances and chooses among them.
bool rates_ranks(const Router& config);

}  // namespace spillway::router
