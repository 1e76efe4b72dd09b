#include "fleet/autoscaler.h"

#include <algorithm>
#include <cmath>

namespace spillway::fleet {

using sim::Time;

std::int64_t ScalerState::poll(std::int64_t queued, std::int64_t shed, std::int64_t instances,
                               Time now) {
  if (shed_.empty()) add(shed_, Time{0}, 0);
  add(shed_, now, shed);
  forget_shed(now - sim::from_seconds(config_.shed_window_s));
  const double shed_per_s = static_cast<double>(shed - shed_.front().value) /
                            sim::to_seconds(std::max(now - shed_.front().first, Time{1}));
  const double wanted = std::max(static_cast<double>(queued) / config_.queue_threshold,
                                 shed_per_s / config_.shed_per_s_threshold);
  const double bounded =
      std::clamp(std::ceil(wanted), static_cast<double>(config_.min_instances),
                 static_cast<double>(std::max(config_.min_instances, config_.max_instances)));
  add(recommendations_, now, static_cast<std::int64_t>(bounded));

  const Time up = sim::from_seconds(config_.up_stabilization_s);
  const Time down = sim::from_seconds(config_.down_stabilization_s);
  std::erase_if(recommendations_,
                [&](const Polls& wish) { return now - wish.last() > std::max(up, down); });
  std::int64_t least = recommendations_.back().value;
  std::int64_t most = least;
  for (const Polls& wish : recommendations_) {
    if (now - wish.last() <= up) least = std::min(least, wish.value);
    if (now - wish.last() <= down) most = std::max(most, wish.value);
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

Time ScalerState::settled_until(std::int64_t instances) const {
  if (recommendations_.size() != 1 || recommendations_.front().value != instances) return Time{0};
  if (shed_.size() == 1) return sim::kForever;
  // While any shed request counts, the rate does not rise, and at least one instance is wanted.
  if (instances != std::max<std::int64_t>(config_.min_instances, 1)) return Time{0};
  return shed_.back().first + sim::from_seconds(config_.shed_window_s);
}

void ScalerState::repeat(std::int64_t polls, Time period) {
  for (auto* of : {&recommendations_, &shed_}) {
    const Time from = of->back().last();
    for (std::int64_t i = 1; i <= std::min<std::int64_t>(polls, 2); ++i) {
      add(*of, from + Time{i * period.ns}, of->back().value);
    }
    of->back().count += std::max<std::int64_t>(polls - 2, 0);
  }
}

void ScalerState::add(std::vector<Polls>& polls, Time now, std::int64_t value) {
  if (!polls.empty() && polls.back().value == value && now > polls.back().last()) {
    Polls& last = polls.back();
    if (last.count == 1) last.period = now - last.first;
    if (now - last.last() == last.period) {
      ++last.count;
      return;
    }
  }
  polls.push_back({now, Time{0}, 1, value});
}

// All totals but the last one up to `since`, and two in any case.
void ScalerState::forget_shed(Time since) {
  while (shed_.size() > 1 || shed_.front().count > 2) {
    Polls& oldest = shed_.front();
    if (oldest.count > 1) {
      const std::int64_t least = shed_.size() > 1 ? 1 : 2;
      const std::int64_t past =
          since < oldest.first ? 0 : (since - oldest.first).ns / oldest.period.ns;
      const std::int64_t gone = std::min(past, oldest.count - least);
      if (gone == 0) return;
      oldest.first += Time{gone * oldest.period.ns};
      oldest.count -= gone;
    } else {
      const bool has_three = shed_.size() > 2 || shed_[1].count > 1;
      if (!has_three || shed_[1].first > since) return;
      shed_.erase(shed_.begin());
    }
  }
}

}  // namespace spillway::fleet
