#include "fleet/autoscaler.h"

#include <algorithm>
#include <cmath>

namespace spillway::fleet {

using sim::Time;

std::int64_t ScalerState::poll(std::int64_t queued, std::int64_t shed, std::int64_t instances,
                               Time now) {
  const Time window = sim::from_seconds(config_.shed_window_s);
  if (shed_.empty()) shed_.push_back({Time{0}, 0});
  shed_.push_back({now, shed});
  while (shed_.size() > 2 && now - shed_[1].at >= window) shed_.erase(shed_.begin());
  const double shed_per_s = static_cast<double>(shed - shed_.front().total) /
                            sim::to_seconds(std::max(now - shed_.front().at, Time{1}));
  const double wanted = std::max(static_cast<double>(queued) / config_.queue_threshold,
                                 shed_per_s / config_.shed_per_s_threshold);
  const double bounded =
      std::clamp(std::ceil(wanted), static_cast<double>(config_.min_instances),
                 static_cast<double>(std::max(config_.min_instances, config_.max_instances)));
  recommendations_.push_back({now, static_cast<std::int64_t>(bounded)});

  const Time up = sim::from_seconds(config_.up_stabilization_s);
  const Time down = sim::from_seconds(config_.down_stabilization_s);
  std::erase_if(recommendations_,
                [&](const Recommendation& wish) { return now - wish.at > std::max(up, down); });
  std::int64_t least = recommendations_.back().instances;
  std::int64_t most = least;
  for (const Recommendation& wish : recommendations_) {
    if (now - wish.at <= up) least = std::min(least, wish.instances);
    if (now - wish.at <= down) most = std::max(most, wish.instances);
  }
  // A recommendation counts only if it has held for the whole window, or since the start of the
  // run.
  const auto may = [&](Time last, double period_s) {
    return !sim::is_set(last) || now - last >= sim::from_seconds(period_s);
  };
  if (least > instances && now >= up && may(last_added_, config_.up_period_s)) {
    last_added_ = now;
    return instances + 1;
  }
  if (most < instances && now >= down && may(last_removed_, config_.down_period_s)) {
    last_removed_ = now;
    return instances - 1;
  }
  return instances;
}

}  // namespace spillway::fleet
