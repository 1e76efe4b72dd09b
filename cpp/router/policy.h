#pragma once

#include "signals/view.h"
#include "sim/ids.h"
#include "sim/rng.h"
#include "sim/time.h"

namespace spillway::router {

/// Contract of a routing policy: which instance takes this request?
///
/// `pick` is free of effects; `learn` follows it with the choice that was made. Draws come from
/// `draws` alone, which belongs to this one decision.
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  virtual sim::InstanceId pick(const signals::RequestView& request, const signals::View& view,
                               sim::Time now, sim::Draws& draws) const = 0;
  virtual void learn(const signals::RequestView& /*request*/, sim::InstanceId /*chosen*/) {}
};

}  // namespace spillway::router
