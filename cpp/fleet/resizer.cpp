#include "fleet/resizer.h"

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

}  // namespace

Resizer::Resizer(const Fleet& config) : target_(config.target_instances) {
  std::visit(
      [&]<class Config>(const Config& scaler) {
        if constexpr (!std::is_same_v<Config, NoAutoscaler>) {
          scaler_.emplace<StateOf<Config>>(scaler);
          poll_period_ = sim::from_seconds(scaler.poll_s);
          next_poll_ = poll_period_;
        }
      },
      config.autoscaler);
}

void Resizer::apply(FleetState& fleet, sim::Time now, const FleetLoad& load) {
  if (const auto target = std::exchange(target_, std::nullopt)) fleet.resize(*target, now);
  if (next_poll_ > now) return;
  const std::int64_t started = fleet.started();
  std::int64_t target = started;
  if (auto* queues = std::get_if<ScalerState>(&scaler_)) {
    target = queues->poll(load.queued, load.shed, started, now);
  } else if (auto* metric = std::get_if<TargetScalerState>(&scaler_)) {
    target = metric->poll(load, started, now);
  } else if (const auto* wva = std::get_if<WvaScaler>(&scaler_)) {
    target = poll(*wva, load, started);
  } else if (const auto* planner = std::get_if<PlannerScaler>(&scaler_)) {
    target = poll(*planner, load, started);
  }
  fleet.resize(target, now);
  has_kept_ = fleet.started() == started;
  next_poll_ += poll_period_;
}

sim::Time Resizer::settled_until(const FleetState& fleet) const {
  if (target_) return sim::Time{0};
  if (const auto* queues = std::get_if<ScalerState>(&scaler_)) {
    return queues->settled_until(fleet.started());
  }
  const auto* metric = std::get_if<TargetScalerState>(&scaler_);
  const bool is_settled = has_kept_ && (!metric || metric->is_settled(fleet.started()));
  return is_settled ? sim::kForever : sim::Time{0};
}

void Resizer::skip(std::int64_t polls) {
  if (auto* queues = std::get_if<ScalerState>(&scaler_)) queues->repeat(polls, poll_period_);
  next_poll_ += sim::Time{polls * poll_period_.ns};
  if (auto* metric = std::get_if<TargetScalerState>(&scaler_)) {
    metric->repeat(next_poll_ - poll_period_);
  }
}

}  // namespace spillway::fleet
