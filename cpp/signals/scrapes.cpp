#include "signals/scrapes.h"

#include <algorithm>

#include "sim/rng.h"

namespace spillway::signals {

namespace {

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
      stale_after_(config.stale_after_s ? sim::from_seconds(*config.stale_after_s) : sim::kForever),
      when_stale_(config.when_stale),
      of_(num_instances),
      last_regular_at_(phase_) {
  for (std::size_t i = 0; i < num_instances; ++i) of_[i].next_at = time_of(sim::InstanceId{i}, 0);
}

sim::Time Scrapes::time_of(sim::InstanceId id, std::int64_t k) const {
  const sim::Time regular = phase_ + sim::Time{k * period_.ns};
  if (jitter_ == 0) return regular;
  const double late = draws_of(seed_, id, k).uniform() * jitter_;
  return regular + sim::Time{static_cast<std::int64_t>(late * static_cast<double>(period_.ns))};
}

void Scrapes::set_silent(sim::InstanceId id, bool is_silent, sim::Time now) {
  auto& silent = of_[id.index()].silent;
  if (is_silent) {
    silent.emplace_back(now, sim::kForever);
  } else if (!silent.empty()) {
    silent.back().second = now;
  }
}

bool Scrapes::is_lost_on_way(sim::InstanceId id, std::int64_t k) const {
  const sim::Time at = time_of(id, k);
  const auto is_then = [at](const auto& span) { return span.first <= at && at < span.second; };
  if (std::ranges::any_of(of_[id.index()].silent, is_then)) return true;
  if (loss_probability_ == 0) return false;
  sim::Draws draws = draws_of(seed_, id, k);
  draws.uniform();  // the jitter's
  return draws.uniform() < loss_probability_;
}

std::int64_t Scrapes::last_scrape(sim::InstanceId id, sim::Time now) {
  if (now < phase_) return -1;
  if (now < last_regular_at_ || now - last_regular_at_ >= period_) {
    last_regular_ = (now - phase_).ns / period_.ns;
    last_regular_at_ = phase_ + sim::Time{last_regular_ * period_.ns};
  }
  return jitter_ > 0 && time_of(id, last_regular_) > now ? last_regular_ - 1 : last_regular_;
}

std::int64_t Scrapes::last_kept(sim::InstanceId id, std::int64_t last) const {
  while (last >= 0 && is_lost(id, last)) --last;
  return last;
}

void Scrapes::take_due(sim::InstanceId id, SignalSource& source, sim::Time until, sim::Time now) {
  Series& series = of_[id.index()];
  const std::int64_t last = last_scrape(id, until);
  // Later readers see this scrape or later ones.
  const std::int64_t oldest = last_kept(id, last_scrape(id, now - delay_));
  const std::int64_t first = std::max(series.next, oldest);
  // Reading the source may take its due scrapes again: mark these as taken first.
  series.next = last + 1;
  series.next_at = time_of(id, series.next);
  for (std::int64_t k = first; k <= last; ++k) {
    if (!is_lost(id, k)) series.taken.push_back(source.read(time_of(id, k)));
  }
  if (oldest >= 0) forget_before(series.taken, time_of(id, oldest));
}

void Scrapes::renew_seen(sim::InstanceId id, SignalSource& source, sim::Time now) {
  take(id, source, now, true);
  Series& series = of_[id.index()];
  const std::int64_t last = last_scrape(id, now - delay_);
  // A scrape that may be lost, or that is due but not visible yet, only ends this period early.
  series.seen_until = std::min(series.next_at, time_of(id, last + 1) + delay_);
  const std::int64_t visible = last_kept(id, last);
  if (visible >= 0) {
    forget_before(series.taken, time_of(id, visible));
    series.seen = series.taken.front();
  } else {
    series.seen = {.measured = sim::kUnset};
  }
  const sim::Time measured = series.seen.measured;
  if (!is_too_old(measured, now)) {
    if (stale_after_ != sim::kForever) {
      series.seen_until = std::min(series.seen_until, measured + stale_after_);
    }
  } else if (when_stale_ == WhenStale::fail_open) {
    series.seen = {.measured = measured};
  } else if (when_stale_ == WhenStale::fail_closed) {
    series.seen.kv_utilization = 1;
    series.seen.free_blocks = 0;
  }
}

}  // namespace spillway::signals
