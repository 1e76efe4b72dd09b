#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "gateway/controller/controller.h"
#include "gateway/controller/guard_config.h"
#include "gateway/controller/policies.h"
#include "sim/schema/enum.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The effect of a tick.
enum class ControlAction : std::uint8_t { hold, increase, decrease, cooldown, no_signal };

/// The effect of a tick and the limit now in force.
struct ControlStep {
  ControlAction action;
  double limit;
  /// Until when ticks with the same reading do the same, without samples or demand.
  sim::Time settled_until{0};
};

/// A controlled limit: the policy proposes moves, the guard grants them.
class Governor {
 public:
  Governor(const Guard& guard, const Controller& controller, double limit, std::uint64_t seed);

  /// The limit in force.
  double limit() const;
  /// Sets the limit from outside; the controller continues from there.
  void resize(double limit) { limit_ = limit; }
  /// Settings have changed. `from`: that in force before.
  void change(const Guard& guard, const Controller& from, const Controller& to);
  void sample(double value, sim::Time dispatched, sim::Time now) {
    policy_->sample(value, dispatched, now);
  }
  /// In this order: no signal, cooldown, the policy, the demand gate, the clamps, rounding. The
  /// action is what the policy wanted, even if floor or ceiling keep the limit; a cut starts the
  /// cooldown in any case.
  ControlStep tick(Reading reading, sim::Time now);

 private:
  double granted(double wanted) const;

  Guard guard_;
  std::unique_ptr<ControllerPolicy> policy_;
  double limit_;  // unrounded
  std::int64_t cooldown_ = 0;
  sim::Time last_tick_{0};
};

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::ControlAction> {
  static constexpr std::array<std::string_view, 5> names{"hold", "increase", "decrease", "cooldown",
                                                         "no_signal"};
};
