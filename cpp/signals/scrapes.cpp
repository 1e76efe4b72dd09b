#include "signals/scrapes.h"

#include <algorithm>

namespace spillway::signals {

namespace {
const InstanceSignal kNothing{.measured = sim::kUnset};
}

Scrapes::Scrapes(const Scraped& config, std::size_t num_instances)
    : period_(sim::from_seconds(config.period_s)),
      phase_(sim::from_seconds(config.phase_s)),
      delay_(sim::from_seconds(config.delay_s)),
      taken_(num_instances),
      next_(num_instances, phase_) {}

sim::Time Scrapes::last_scrape(sim::Time now) const {
  if (now < phase_) return sim::kUnset;
  return phase_ + sim::Time{(now - phase_).ns / period_.ns * period_.ns};
}

void Scrapes::take_due(sim::InstanceId id, Probe& probe, sim::Time until, sim::Time now) {
  const sim::Time last = last_scrape(until);
  sim::Ring<InstanceSignal>& taken = taken_[id.index()];
  // Later readers know of this one, or of later ones.
  const sim::Time oldest = last_scrape(now - delay_);
  sim::Time& next = next_[id.index()];
  if (sim::is_set(oldest)) next = std::max(next, oldest);
  for (; next <= last; next += period_) taken.push_back(probe.read(next));
  while (taken.size() > 1 && taken[1].measured <= oldest) taken.pop_front();
}

const InstanceSignal& Scrapes::seen(sim::InstanceId id, Probe& probe, sim::Time now) {
  take(id, probe, now, true);
  if (read_at_ != now) {
    read_at_ = now;
    visible_ = last_scrape(now - delay_);
  }
  sim::Ring<InstanceSignal>& taken = taken_[id.index()];
  while (taken.size() > 1 && taken[1].measured <= visible_) taken.pop_front();
  return sim::is_set(visible_) ? taken.front() : kNothing;
}

}  // namespace spillway::signals
