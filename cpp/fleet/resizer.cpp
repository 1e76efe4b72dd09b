#include "fleet/resizer.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

namespace spillway::fleet {

namespace {

// Rules without memory have no state besides their settings.
template <class Config>
struct State {
  using type = Config;
};
template <>
struct State<QueueScaler> {
  using type = ScalerState;
};
template <>
struct State<TargetScaler> {
  using type = TargetScalerState;
};
template <class Config>
using StateOf = typename State<Config>::type;

// Decisions of the others depend on the load at the poll alone.
double memory_s(const auto& /*scaler*/) { return 0; }
double memory_s(const QueueScaler& scaler) {
  return std::max({scaler.shed_window_s, scaler.up_stabilization_s, scaler.up_period_s,
                   scaler.down_stabilization_s, scaler.down_period_s});
}
double memory_s(const TargetScaler& scaler) {
  return std::max(scaler.up_stabilization_s, scaler.down_stabilization_s);
}

}  // namespace

Resizer::Resizer(std::optional<std::int64_t> target, const Autoscaler& autoscaler, std::size_t pool)
    : pool_(pool), target_(target) {
  std::visit(
      [&]<class Config>(const Config& scaler) {
        if constexpr (!std::is_same_v<Config, NoAutoscaler>) {
          scaler_.emplace<StateOf<Config>>(scaler);
          poll_period_ = sim::from_seconds(scaler.poll_s);
          next_poll_ = poll_period_;
          max_instances_ = std::max(scaler.min_instances, scaler.max_instances);
          // What lies before the window of a rate counts up to two polls longer.
          const double memory = memory_s(scaler) + 2 * scaler.poll_s;
          memory_ = sim::from_seconds(std::min(memory, sim::kLongestSpan_s));
        }
      },
      autoscaler);
}

void Resizer::apply(FleetState& fleet, sim::Time now, const FleetLoad& load, std::int64_t most) {
  if (const auto target = std::exchange(target_, std::nullopt)) fleet.resize(pool_, *target, now);
  if (next_poll_ > now) return;
  const std::int64_t started = fleet.started(pool_);
  if (started != last_started_ || !is_same(load, last_load_)) {
    last_started_ = started;
    last_load_ = load;
    same_since_ = now;
  }
  fleet.resize(pool_, std::min(polled(load, started, now), std::max(started, most)), now);
  next_poll_ += poll_period_;
}

std::int64_t Resizer::polled(const FleetLoad& load, std::int64_t started, sim::Time now) {
  if (auto* queues = std::get_if<ScalerState>(&scaler_)) {
    return queues->poll(load.queued, load.shed, started, now);
  }
  if (auto* target = std::get_if<TargetScalerState>(&scaler_)) {
    return target->poll(load, started, now);
  }
  if (const auto* wva = std::get_if<WvaScaler>(&scaler_)) return poll(*wva, load, started);
  if (const auto* planner = std::get_if<PlannerScaler>(&scaler_)) {
    return poll(*planner, load, started);
  }
  return started;
}

}  // namespace spillway::fleet
