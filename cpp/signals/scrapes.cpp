#include "signals/scrapes.h"

#include <algorithm>

#include "sim/rng.h"

namespace spillway::signals {

namespace {

const InstanceSignal kNothing{.measured = sim::kUnset};

sim::Draws draws_of(std::uint64_t seed, sim::InstanceId id, std::int64_t k) {
  return {seed, sim::Stream::scrapes, id.value, static_cast<std::uint64_t>(k)};
}

void forget_before(sim::Ring<InstanceSignal>& taken, sim::Time visible) {
  while (taken.size() > 1 && taken[1].measured <= visible) taken.pop_front();
}

}  // namespace

Scrapes::Scrapes(const Scraped& config, std::size_t num_instances, std::uint64_t seed)
    : seed_(seed),
      period_(sim::from_seconds(config.period_s)),
      phase_(sim::from_seconds(config.phase_s)),
      delay_(sim::from_seconds(config.delay_s)),
      jitter_(config.jitter),
      loss_probability_(config.loss_probability),
      of_(num_instances) {
  for (std::size_t i = 0; i < num_instances; ++i) of_[i].next_at = time_of(sim::InstanceId{i}, 0);
}

sim::Time Scrapes::time_of(sim::InstanceId id, std::int64_t k) const {
  const sim::Time regular = phase_ + sim::Time{k * period_.ns};
  if (jitter_ == 0) return regular;
  const double late = draws_of(seed_, id, k).uniform() * jitter_;
  return regular + sim::Time{static_cast<std::int64_t>(late * static_cast<double>(period_.ns))};
}

bool Scrapes::is_lost(sim::InstanceId id, std::int64_t k) const {
  if (loss_probability_ == 0) return false;
  sim::Draws draws = draws_of(seed_, id, k);
  draws.uniform();  // the jitter's
  return draws.uniform() < loss_probability_;
}

std::int64_t Scrapes::last_scrape(sim::InstanceId id, sim::Time now, bool arrived) const {
  if (now < phase_) return -1;
  std::int64_t k = (now - phase_).ns / period_.ns;
  if (is_regular()) return k;
  if (time_of(id, k) > now) --k;
  while (arrived && k >= 0 && is_lost(id, k)) --k;
  return k;
}

sim::Time Scrapes::visible(sim::InstanceId id, sim::Time now) {
  if (read_at_ == now && is_regular()) return visible_;
  const std::int64_t k = last_scrape(id, now - delay_, true);
  read_at_ = now;
  visible_ = k < 0 ? sim::kUnset : time_of(id, k);
  return visible_;
}

void Scrapes::take_due(sim::InstanceId id, SignalSource& source, sim::Time until, sim::Time now) {
  Series& series = of_[id.index()];
  const std::int64_t last = last_scrape(id, until, false);
  // Later readers see this scrape or later ones.
  const std::int64_t oldest = last_scrape(id, now - delay_, true);
  const std::int64_t first = std::max(series.next, oldest);
  // Reading the source may take its due scrapes again: mark these as taken first.
  series.next = last + 1;
  series.next_at = time_of(id, series.next);
  for (std::int64_t k = first; k <= last; ++k) {
    if (!is_lost(id, k)) series.taken.push_back(source.read(time_of(id, k)));
  }
  if (oldest >= 0) forget_before(series.taken, time_of(id, oldest));
}

const InstanceSignal& Scrapes::seen(sim::InstanceId id, SignalSource& source, sim::Time now) {
  take(id, source, now, true);
  const sim::Time last = visible(id, now);
  sim::Ring<InstanceSignal>& taken = of_[id.index()].taken;
  forget_before(taken, last);
  return sim::is_set(last) ? taken.front() : kNothing;
}

}  // namespace spillway::signals
