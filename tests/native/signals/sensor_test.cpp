// The value of a sensor equals its definition over all samples; a bucketed quantile
// is the one of vllm-on-eks, window and all.
#include "signals/sensor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "check.h"
#include "numerics/percentile.h"
#include "sim/rng.h"

using spillway::signals::Aggregate;
using spillway::signals::Aggregation;
using spillway::signals::kBucketEdges_s;
using spillway::signals::Sensor;
using spillway::signals::SensorScope;
using spillway::signals::SensorSource;
using spillway::signals::SensorState;
using spillway::sim::Draws;
using spillway::sim::from_seconds;
using spillway::sim::Stream;
using spillway::sim::TenantId;
using spillway::sim::Time;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool close(double a, double b) { return same(a, b) || std::abs(a - b) <= 1e-12 * std::abs(b); }

/// The p99 of these samples, all taken between two readings.
double p99(const std::vector<double>& values) {
  SensorState state(Sensor{}, 1);
  check(std::isnan(state.read(from_seconds(5)).value), "one snapshot is no window");
  for (const double value : values) state.record(TenantId{0}, value, from_seconds(6));
  const Aggregate aggregate = state.read(from_seconds(10));
  check(aggregate.samples == std::ssize(values), "all samples count");
  return aggregate.value;
}

void bucketed_quantiles_by_hand() {
  // Rank 9.9 of 10 in (1.5, 2]: 1.5 + 0.5 × 0.99. The upper edge belongs to the bucket.
  check(close(p99(std::vector<double>(10, 1.7)), 1.995), "all in one bucket");
  check(close(p99(std::vector<double>(10, 2.0)), 1.995), "an upper edge is within");
  check(close(p99(std::vector<double>(10, 2.0001)), 2.99), "just above it is the next bucket");
  check(close(p99(std::vector<double>(10, 0.0)), 0.02475), "the first bucket starts at 0");
  check(p99(std::vector<double>(10, 601)) == 600, "the open bucket counts as its edge");
  check(std::isnan(p99(std::vector<double>(9, 1.7))), "nine are too few");

  // 195 below, 5 in (5, 7.5]: rank 198, the third of the five.
  std::vector<double> values(195, 0.4);
  values.insert(values.end(), 5, 6.0);
  check(close(p99(values), 5 + 2.5 * 3 / 5), "within the tail's bucket");
  // 198 of 200 below an edge: the rank is the edge itself.
  values.assign(198, 0.4);
  values.insert(values.end(), 2, 6.0);
  check(close(p99(values), 0.5), "the rank falls on an edge");
}

/// Number of samples in the window at the tick after `ticks`, with 100 samples per second.
std::int64_t samples_at(double window_s, double drift_s, std::int64_t ticks) {
  Sensor config;
  config.window_s = window_s;
  config.tick_drift_s = drift_s;
  SensorState state(config, 1);
  const std::int64_t interval = config.interval().ns;
  constexpr std::int64_t kGap = 10'000'000;
  std::int64_t next_sample = kGap / 2;
  Aggregate aggregate{kNan, 0};
  for (std::int64_t tick = 1; tick <= ticks; ++tick) {
    for (; next_sample < tick * interval; next_sample += kGap) {
      state.record(TenantId{0}, 1.0, Time{next_sample});
    }
    aggregate = state.read(Time{tick * interval});
    check(std::isnan(aggregate.value) == (aggregate.samples < 10), "a signal needs samples");
  }
  return aggregate.samples;
}

void drifting_ticks_shorten_a_bucketed_window() {
  const auto about = [](std::int64_t samples, double span_s) {
    return std::abs(static_cast<double>(samples) - 100 * span_s) <= 1;
  };
  check(about(samples_at(30, 0.001, 20), 25.005), "30 s are 25 s");
  check(about(samples_at(10, 0.001, 20), 5.001), "10 s are 5 s");
  check(samples_at(5, 0.001, 20) == 0, "5 s are none at all");
  check(about(samples_at(30, 0, 20), 30), "with an exact clock, 30 s are 30 s");
  check(about(samples_at(10, 0, 20), 10), "with an exact clock, 10 s are 10 s");
  check(about(samples_at(5, 0, 20), 5), "with an exact clock, 5 s are 5 s");
  check(samples_at(30, 0.001, 1) == 0, "the first tick has no window");
  check(about(samples_at(30, 0.001, 2), 5.001), "the window grows from the second tick on");
}

void samples_of_a_window_long_past_are_forgotten() {
  for (const Aggregation aggregation : {Aggregation::bucketed_quantile, Aggregation::mean}) {
    Sensor config;
    config.aggregation = aggregation;
    SensorState state(config, 1);
    state.read(from_seconds(5));
    for (int i = 0; i < 20; ++i) state.record(TenantId{0}, 1, from_seconds(6));
    check(state.read(from_seconds(10)).samples == 20, "within the window");
    check(std::isnan(state.read(from_seconds(100)).value), "long after");
  }
}

/// The estimator of vllm-on-eks @ 0c78403, aimd.py, over counts taken from all samples.
class SlowBuckets {
 public:
  Aggregate read(const std::vector<double>& so_far, const Sensor& config, Time now) {
    std::vector<double> counts;
    for (const double edge : kBucketEdges_s) {
      counts.push_back(static_cast<double>(std::count_if(
          so_far.begin(), so_far.end(), [&](double value) { return value <= edge; })));
    }
    counts.push_back(static_cast<double>(so_far.size()));
    snapshots_.push_back({now, counts});
    while (snapshots_.front().at < now - from_seconds(config.window_s)) {
      snapshots_.erase(snapshots_.begin());
    }
    if (snapshots_.size() < 2) return {kNan, 0};
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] -= snapshots_.front().counts[i];
    const auto samples = static_cast<std::int64_t>(counts.back());
    if (samples < config.min_samples) return {kNan, samples};
    const double rank = config.quantile * counts.back();
    double previous_edge = 0;
    double previous = 0;
    for (std::size_t i = 0; i < kBucketEdges_s.size(); ++i) {
      if (counts[i] >= rank) {
        if (counts[i] <= previous) return {kBucketEdges_s[i], samples};
        const double fraction = (rank - previous) / (counts[i] - previous);
        return {previous_edge + (kBucketEdges_s[i] - previous_edge) * fraction, samples};
      }
      previous_edge = kBucketEdges_s[i];
      previous = counts[i];
    }
    return {kBucketEdges_s.back(), samples};
  }

 private:
  struct Snapshot {
    Time at;
    std::vector<double> counts;
  };
  std::vector<Snapshot> snapshots_;
};

struct Measured {
  Time at;
  std::size_t tenant;
  double value;
};

/// The aggregate by its definition.
Aggregate slow_aggregate(const std::vector<Measured>& all, const Sensor& config, Time now) {
  std::vector<double> values;
  double sum = 0;
  double weights = 0;
  for (const Measured& measured : all) {
    const double weight =
        std::exp2(-spillway::sim::to_seconds(now - measured.at) / config.ewma_half_life_s);
    sum += weight * measured.value;
    weights += weight;
    if (measured.at > now - from_seconds(config.window_s)) values.push_back(measured.value);
  }
  const std::int64_t samples = std::ssize(values);
  if (samples < config.min_samples) return {kNan, samples};
  if (config.aggregation == Aggregation::ewma) return {sum / weights, samples};
  if (config.aggregation == Aggregation::mean) {
    double total = 0;
    for (const double value : values) total += value;
    return {total / static_cast<double>(samples), samples};
  }
  std::sort(values.begin(), values.end());
  if (config.aggregation == Aggregation::min) return {values.front(), samples};
  const double rank = config.quantile * static_cast<double>(samples - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return {spillway::numerics::interpolate(values[below], values[above], rank - std::floor(rank)),
          samples};
}

void equals_the_definition_on_random_samples() {
  constexpr std::size_t kTenants = 3;
  std::int64_t signals = 0;
  for (std::uint64_t round = 0; round < 500; ++round) {
    Draws draws(round, Stream::arrivals, 0);
    Sensor config;
    config.aggregation = static_cast<Aggregation>(draws.below(5));
    config.scope = static_cast<SensorScope>(draws.below(3));
    config.quantile = std::vector{0.0, 0.5, 0.9, 0.99, 1.0}[draws.below(5)];
    config.window_s = static_cast<double>(1 + draws.below(8));
    config.ewma_half_life_s = 0.5 + 3 * draws.uniform();
    config.tick_s = static_cast<double>(1 + draws.below(3));
    config.tick_drift_s = draws.below(2) == 0 ? 0 : 0.001;
    config.min_samples = static_cast<std::int64_t>(1 + draws.below(15));
    const std::size_t named = draws.below(kTenants);
    const double spread = 1 + 4 * draws.uniform();
    const bool is_bucketed = config.aggregation == Aggregation::bucketed_quantile;

    SensorState state(config, kTenants);
    std::vector<std::vector<Measured>> all(kTenants + 1);  // the last: of every tenant
    std::vector<SlowBuckets> buckets(kTenants + 1);
    Time now{0};
    for (int tick = 0; tick < 30; ++tick) {
      const Time next = now + config.interval();
      // Bursts and silence; times on a coarse grid, so that samples fall on a window's edge too.
      const std::uint64_t count = draws.below(3) == 0 ? 0 : draws.below(20);
      std::vector<Time> times;
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto steps = static_cast<std::uint64_t>((next - now).ns / 250'000'000 + 1);
        const Time at{now.ns + static_cast<std::int64_t>(draws.below(steps)) * 250'000'000};
        times.push_back(std::min(at, next));
      }
      std::sort(times.begin(), times.end());
      for (const Time at : times) {
        // Some are on an edge, some in the open bucket.
        const double value = draws.below(4) == 0 ? kBucketEdges_s[draws.below(28)]
                                                 : std::exp(spread * draws.normal());
        const Measured measured{at, draws.below(kTenants), value};
        const bool is_in_scope = config.scope != SensorScope::tenant || measured.tenant == named;
        if (is_in_scope) state.record(TenantId{measured.tenant}, value, at);
        all[measured.tenant].push_back(measured);
        all[kTenants].push_back(measured);
      }
      now = next;

      std::vector<Aggregate> expected;
      for (std::size_t i = 0; i <= kTenants; ++i) {
        std::vector<double> values;
        for (const Measured& measured : all[i]) values.push_back(measured.value);
        expected.push_back(is_bucketed ? buckets[i].read(values, config, now)
                                       : slow_aggregate(all[i], config, now));
      }
      Aggregate due = expected[kTenants];
      if (config.scope == SensorScope::tenant) due = expected[named];
      if (config.scope == SensorScope::max_over_tenants) {
        due = {kNan, 0};
        for (std::size_t i = 0; i < kTenants; ++i) {
          if (std::isnan(expected[i].value)) continue;
          if (std::isnan(due.value) || expected[i].value > due.value) due = expected[i];
        }
      }
      const Aggregate reading = state.read(now);
      const bool is_ewma = config.aggregation == Aggregation::ewma;
      check(is_ewma ? std::isnan(reading.value) == std::isnan(due.value) &&
                          !(std::abs(reading.value - due.value) > 1e-9 * due.value)
                    : close(reading.value, due.value),
            "the aggregate is the defined one");
      check(reading.samples == due.samples, "so is the number of samples");
      signals += std::isnan(reading.value) ? 0 : 1;
    }
  }
  check(signals > 3000, "many readings had a signal");
}

void quantile_equals_percentiles() {
  for (std::uint64_t round = 0; round < 300; ++round) {
    Draws draws(round, Stream::arrivals, 1);
    std::vector<double> values(1 + draws.below(round < 290 ? 50 : 5000));
    for (double& value : values) value = std::floor(20 * draws.uniform());
    for (const double q : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      const double p = 100 * q;
      std::vector<double> copy = values;
      check(spillway::numerics::quantile(values, q) ==
                spillway::numerics::percentiles(copy, std::span(&p, 1))[0],
            "one quantile equals the same percentile");
    }
  }
}

void what_is_read_at_ticks_needs_no_samples() {
  Sensor config;
  check(config.needs_samples(), "latencies are sampled");
  check(config.interval() == from_seconds(5.001), "ticks come late");
  config.source = SensorSource::kv_utilization;
  check(!config.needs_samples(), "KV utilization is read");
  config.source = SensorSource::hit_rate;
  check(!config.needs_samples(), "the hit rate is read");
}

}  // namespace

CASES(bucketed_quantiles_by_hand, drifting_ticks_shorten_a_bucketed_window,
      samples_of_a_window_long_past_are_forgotten, equals_the_definition_on_random_samples,
      quantile_equals_percentiles, what_is_read_at_ticks_needs_no_samples);
