#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "signals/view.h"
#include "sim/ids.h"
#include "sim/rng.h"
#include "sim/time.h"

namespace spillway::router {

/// Contract of a routing policy: which instance takes this request, and, if the policy knows of
/// ranks, which of its ranks?
///
/// `pick` chooses among the instances of the view. It has no effect on later picks; `learn` follows
/// it with the choice that was made, then, if the policy wants to know, `first_token` and
/// `finished` (without the former if it was refused). Draws come from `draws` alone, which belongs
/// to this one decision.
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  virtual sim::InstanceId pick(const signals::RequestView& request, const signals::View& view,
                               sim::Time now, sim::Draws& draws) = 0;
  /// Of the instance that the last pick chose; none: that is left to the instance.
  virtual std::optional<std::size_t> picked_rank() const { return std::nullopt; }
  /// What the last pick rated each instance of its view with, or each rank of each if it chose one,
  /// higher is better; empty if it did not rate them.
  virtual std::span<const double> scores() const { return {}; }
  virtual void learn(const signals::RequestView& /*request*/, sim::InstanceId /*chosen*/) {}
  virtual void first_token(sim::RequestId /*id*/, sim::InstanceId /*instance*/) {}
  virtual void finished(sim::RequestId /*id*/, sim::InstanceId /*instance*/) {}
};

}  // namespace spillway::router
