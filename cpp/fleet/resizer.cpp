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
  if (auto* queues = std::get_if<ScalerState>(&scaler_)) {
    fleet.resize(queues->poll(load.queued, load.shed, started, now), now);
  } else if (auto* target = std::get_if<TargetScalerState>(&scaler_)) {
    fleet.resize(target->poll(load, started, now), now);
  } else if (const auto* wva = std::get_if<WvaScaler>(&scaler_)) {
    fleet.resize(poll(*wva, load, started), now);
  } else if (const auto* planner = std::get_if<PlannerScaler>(&scaler_)) {
    fleet.resize(poll(*planner, load, started), now);
  }
  next_poll_ += poll_period_;
}

}  // namespace spillway::fleet
