#include "signals/scrapes.h"

#include <algorithm>

namespace spillway::signals {

namespace {
const InstanceSignal kNothing{};
}

Scrapes::Scrapes(const Scraped& config, std::size_t num_instances)
    : period_(sim::from_seconds(config.period_s)),
      phase_(sim::from_seconds(config.phase_s)),
      delay_(sim::from_seconds(config.delay_s)),
      taken_(num_instances) {
  period_ = std::max(period_, sim::Time{1});
}

sim::Time Scrapes::last_scrape(sim::Time now) const {
  if (now < phase_) return sim::kUnset;
  return phase_ + sim::Time{(now - phase_).ns / period_.ns * period_.ns};
}

void Scrapes::take(sim::InstanceId id, Probe& probe, sim::Time now, bool inclusive) {
  const sim::Time last = last_scrape(inclusive ? now : now - sim::Time{1});
  if (!sim::is_set(last)) return;
  sim::Ring<InstanceSignal>& taken = taken_[id.index()];
  // Later readers know of this one, or of later ones.
  const sim::Time oldest = last_scrape(now - delay_);
  sim::Time next = taken.empty() ? phase_ : taken[taken.size() - 1].measured + period_;
  if (sim::is_set(oldest)) next = std::max(next, oldest);
  for (; next <= last; next += period_) taken.push_back(probe.read(next));
  while (taken.size() > 1 && taken[1].measured <= oldest) taken.pop_front();
}

const InstanceSignal& Scrapes::seen(sim::InstanceId id, Probe& probe, sim::Time now) {
  take(id, probe, now, true);
  const sim::Time visible = last_scrape(now - delay_);
  const sim::Ring<InstanceSignal>& taken = taken_[id.index()];
  return sim::is_set(visible) ? taken.front() : kNothing;
}

}  // namespace spillway::signals
