#include "gateway/controller/guard.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "sim/schema/codec.h"

namespace spillway::gateway {

Governor::Governor(const Guard& guard, const Controller& controller, double limit,
                   std::uint64_t seed)
    : guard_(guard),
      policy_(std::visit([&](const auto& config) { return make(config, seed); }, controller)),
      limit_(limit) {}

double Governor::limit() const {
  if (guard_.rounding == Rounding::none) return limit_;
  return guard_.rounding == Rounding::floor ? std::floor(limit_) : std::round(limit_);
}

ControlStep Governor::tick(Reading reading, sim::Time now) {
  reading.since_last_tick_s = sim::to_seconds(now - last_tick_);
  last_tick_ = now;
  reading.has_demand =
      reading.queued > 0 || (guard_.demand == Demand::in_flight_or_queued && reading.in_flight > 0);
  if (policy_->needs_value() && std::isnan(reading.value)) {
    return {ControlAction::no_signal, limit(), sim::kForever};
  }
  if (cooldown_ > 0) {
    --cooldown_;
    return {ControlAction::cooldown, limit()};
  }
  const double before = limit_;
  const double wanted = policy_->tick(reading, limit_, now);
  const auto settled_until = [&] {
    return limit_ == before ? policy_->settled_until(reading, limit_) : sim::Time{0};
  };
  if (wanted < limit_) {
    limit_ = granted(wanted);
    cooldown_ = guard_.cooldown_ticks;
    return {ControlAction::decrease, limit(), cooldown_ == 0 ? settled_until() : sim::Time{0}};
  }
  if (wanted > limit_ && (reading.has_demand || !guard_.demand_gate)) {
    limit_ = granted(wanted);
    return {ControlAction::increase, limit(), settled_until()};
  }
  return {ControlAction::hold, limit(), settled_until()};
}

void Governor::change(const Guard& guard, const Controller& from, const Controller& to) {
  guard_ = guard;
  if (sim::differ(from, to)) policy_->change(to);
}

double Governor::granted(double wanted) const {
  const bool rises = wanted > limit_;
  const double clamped = rises ? std::min(wanted, guard_.ceiling) : std::max(wanted, guard_.floor);
  if (guard_.clamps == Clamps::verbatim) return clamped;
  return rises ? std::max(clamped, limit_) : std::min(clamped, limit_);
}

}  // namespace spillway::gateway
