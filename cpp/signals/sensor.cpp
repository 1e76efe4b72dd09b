#include "signals/sensor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/percentile.h"
#include "sim/math.h"

namespace spillway::signals {

namespace {

constexpr double kNoSignal = std::numeric_limits<double>::quiet_NaN();

/// The quantile of bucket counts as Prometheus estimates it: at rank q·n, linear between the edges
/// of its bucket. The open bucket counts as the highest edge.
template <class Counts>
double bucketed_quantile(const Counts& counts, double q, std::int64_t total) {
  const double rank = q * static_cast<double>(total);
  double lower_edge = 0;
  std::int64_t below = 0;
  for (std::size_t i = 0; i < kBucketEdges_s.size(); ++i) {
    const double upper_edge = kBucketEdges_s[i];
    if (static_cast<double>(below + counts[i]) >= rank) {
      if (counts[i] == 0) return upper_edge;
      const double fraction = (rank - static_cast<double>(below)) / static_cast<double>(counts[i]);
      return lower_edge + (upper_edge - lower_edge) * fraction;
    }
    lower_edge = upper_edge;
    below += counts[i];
  }
  return kBucketEdges_s.back();
}

}  // namespace

SensorState::SensorState(const Sensor& config, std::size_t num_tenants)
    : aggregation_(config.aggregation),
      quantile_(config.quantile),
      half_life_s_(config.ewma_half_life_s),
      window_(sim::from_seconds(config.window_s)),
      min_samples_(config.min_samples),
      scope_(config.scope),
      series_(config.scope == SensorScope::max_over_tenants ? num_tenants : 1) {}

void SensorState::record(sim::TenantId tenant, double value_s, sim::Time now) {
  Series& series = series_[scope_ == SensorScope::max_over_tenants ? tenant.index() : 0];
  if (aggregation_ == Aggregation::bucketed_quantile) {
    const auto* const bucket =
        std::lower_bound(kBucketEdges_s.begin(), kBucketEdges_s.end(), value_s);
    ++series.counts[static_cast<std::size_t>(bucket - kBucketEdges_s.begin())];
    return;
  }
  forget(series, now);
  series.samples.push_back({now, value_s});
  if (aggregation_ == Aggregation::ewma) {
    const double age_s = sim::to_seconds(now - series.latest);
    series.weight = series.weight * sim::exp2(-age_s / half_life_s_) + 1;
    series.mean += (value_s - series.mean) / series.weight;
    series.latest = now;
  }
}

Aggregate SensorState::read(sim::Time now) {
  Aggregate largest{kNoSignal, 0};
  for (Series& series : series_) {
    const Aggregate own = read(series, now);
    if (series_.size() == 1) return own;
    if (!std::isnan(own.value) && !(own.value <= largest.value)) largest = own;
  }
  return largest;
}

// The window is open at its old end, like the difference of two counts.
void SensorState::forget(Series& series, sim::Time now) const {
  while (!series.samples.empty() && series.samples.front().at <= now - window_) {
    series.samples.pop_front();
  }
}

Aggregate SensorState::read(Series& series, sim::Time now) {
  if (aggregation_ == Aggregation::bucketed_quantile) return read_buckets(series, now);
  forget(series, now);
  const auto samples = static_cast<std::int64_t>(series.samples.size());
  return {samples < min_samples_ ? kNoSignal : aggregate(series), samples};
}

Aggregate SensorState::read_buckets(Series& series, sim::Time now) const {
  auto& snapshots = series.snapshots;
  snapshots.push_back({now, series.counts});
  while (snapshots.front().at < now - window_) snapshots.pop_front();
  Counts within{};
  std::int64_t samples = 0;
  for (std::size_t i = 0; i < within.size(); ++i) {
    within[i] = series.counts[i] - snapshots.front().counts[i];
    samples += within[i];
  }
  const double value =
      samples < min_samples_ ? kNoSignal : bucketed_quantile(within, quantile_, samples);
  return {value, samples};
}

double SensorState::aggregate(const Series& series) {
  if (aggregation_ == Aggregation::ewma) return series.mean;
  scratch_.clear();
  for (std::size_t i = 0; i < series.samples.size(); ++i) {
    scratch_.push_back(series.samples[i].value);
  }
  if (aggregation_ == Aggregation::exact_quantile) return numerics::quantile(scratch_, quantile_);
  if (aggregation_ == Aggregation::min) return *std::min_element(scratch_.begin(), scratch_.end());
  double sum = 0;
  for (const double value : scratch_) sum += value;
  return sum / static_cast<double>(scratch_.size());
}

}  // namespace spillway::signals
