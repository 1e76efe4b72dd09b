#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "cluster/context.h"
#include "router/router.h"
#include "sim/ids.h"
#include "sim/phase.h"
#include "sim/time.h"

namespace spillway::cluster {

/// Routing decisions that take time: until one has been taken, its request has a second event of
/// phase `routing`.
class DecisionDelay {
 public:
  explicit DecisionDelay(Context& context)
      : context_(context),
        latency_(sim::from_seconds(context.simulation.gateway.decision_latency_s)) {}

  bool is_on() const { return latency_ > sim::Time{0}; }
  void begin(sim::RequestId id, const router::Target& target) {
    if (decided_.size() <= id.index()) decided_.resize(2 * id.index() + 1);
    decided_[id.index()] = target;
    context_.events.push({context_.now + latency_, sim::Phase::routing, 0, id.value});
  }
  /// The decision that has been taken now; unset: there was none.
  std::optional<router::Target> take(sim::RequestId id) {
    if (!is_on() || id.index() >= decided_.size()) return std::nullopt;
    return std::exchange(decided_[id.index()], std::nullopt);
  }

 private:
  Context& context_;
  sim::Time latency_;
  std::vector<std::optional<router::Target>> decided_;  // by request
};

}  // namespace spillway::cluster
