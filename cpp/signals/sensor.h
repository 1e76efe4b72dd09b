#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "signals/sensor_config.h"
#include "sim/ids.h"
#include "sim/ring.h"
#include "sim/time.h"

namespace spillway::signals {

/// Upper edges of the buckets of `bucketed_quantile`, in seconds; one more bucket is open above.
inline constexpr std::array<double, 28> kBucketEdges_s{
    0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1,   1.5, 2,   3,   5,
    7.5,   10,   15,    20,  30,   45,  60,  90,  120,  180, 240, 300, 450, 600};

/// A reading of a sensor.
struct Aggregate {
  double value;  ///< NaN: too few samples
  std::int64_t
      samples;  ///< number of samples in the value; with max_over_tenants, those of that tenant
};

/// The samples of a sensor in one run.
class SensorState {
 public:
  SensorState(const Sensor& config, std::size_t num_tenants);

  /// Preconditions: the request is in the scope, and `now` never decreases.
  void record(sim::TenantId tenant, double value_s, sim::Time now);
  /// To be called exactly once per tick: a bucketed window extends from tick to tick.
  Aggregate read(sim::Time now);

 private:
  using Counts = std::array<std::int64_t, kBucketEdges_s.size() + 1>;
  struct Snapshot {
    sim::Time at;
    Counts counts;
  };
  struct Sample {
    sim::Time at;
    double value;
  };
  // Samples that are aggregated together. For a bucketed quantile they are counted since the start
  // of the run; otherwise the window's samples are kept.
  struct Series {
    Counts counts{};
    sim::Ring<Snapshot> snapshots;
    sim::Ring<Sample> samples;
    double mean = 0;  // weighted by age
    double weight = 0;
    sim::Time latest{0};
  };

  void forget(Series& series, sim::Time now) const;
  Aggregate read(Series& series, sim::Time now);
  Aggregate read_buckets(Series& series, sim::Time now) const;
  double aggregate(const Series& series);

  Aggregation aggregation_;
  double quantile_;
  double half_life_s_;
  sim::Time window_;
  std::int64_t min_samples_;
  SensorScope scope_;
  std::vector<Series> series_;
  std::vector<double> scratch_;
};

}  // namespace spillway::signals
