#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>

#include "router/policies.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/rng.h"
#include "sim/time.h"

namespace spillway::router {

/// The choice of a policy that rejects the request.
inline constexpr sim::InstanceId kNoInstance{std::numeric_limits<std::uint32_t>::max()};

/// Contract of a routing policy: which instance takes this request and, if the policy chooses
/// ranks, which of its ranks?
///
/// `pick` chooses among the instances of the view, or rejects the request with `kNoInstance`, which
/// nothing follows. It has no effect on later picks; `learn` follows with the choice that was made,
/// then `first_token` and `finished` (only the latter if the request was refused). Draws come only
/// from `draws`, which belongs to this decision.
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  virtual sim::InstanceId pick(const signals::RequestView& request, const signals::View& view,
                               sim::Time now, sim::Draws& draws) = 0;
  /// Whether `pick` may reject a request; constant.
  virtual bool may_reject() const { return false; }
  /// The rank of the instance that the last pick chose; unset: the instance assigns one.
  virtual std::optional<std::size_t> picked_rank() const { return std::nullopt; }
  /// The scores of the last pick, one per instance of its view, or per rank if it chose one; higher
  /// is better. Empty if the policy has no scores.
  virtual std::span<const double> scores() const { return {}; }
  /// Whether `admitted` and `dropped` are called; constant.
  virtual bool follows_admitted() const { return false; }
  /// The request has joined a queue, from which it will be routed or dropped.
  virtual void admitted(const signals::RequestView& /*request*/, const signals::View& /*view*/) {}
  /// The request has left the queue without being routed.
  virtual void dropped(sim::RequestId /*id*/) {}
  virtual void learn(const signals::RequestView& /*request*/, sim::InstanceId /*chosen*/) {}
  virtual void first_token(sim::RequestId /*id*/, sim::InstanceId /*instance*/) {}
  virtual void finished(sim::RequestId /*id*/, sim::InstanceId /*instance*/) {}
  /// Settings have changed; only called with changed ones of its own kind.
  virtual void change(const Router& /*to*/) {
    throw std::logic_error("a routing policy with changeable settings has no change()");
  }
};

}  // namespace spillway::router
