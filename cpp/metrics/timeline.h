#pragma once

#include <cstdint>
#include <vector>

#include "sim/time.h"

namespace spillway::metrics {

/// The counts of a tenant's requests so far.
struct TenantSample {
  std::int64_t submitted = 0;   ///< reached the gateway
  std::int64_t dispatched = 0;  ///< took a permit
  std::int64_t shed = 0;        ///< rejected, expired or evicted by the gateway
  std::int64_t completed = 0;
  std::int64_t queued = 0;          ///< now
  std::int64_t emitted_tokens = 0;  ///< since the start
  std::int64_t good = 0;            ///< completed within the targets of their class
};

/// State of gateway and fleet at one instant.
struct Sample {
  sim::Time at;
  std::int64_t in_flight = 0;  ///< between dispatch and last token
  double permits = 0;          ///< total of all gateways; NaN: the limits do not count requests
  std::int64_t waiting = 0;    ///< in the engines' queues
  std::int64_t running = 0;    ///< in the engines' batches
  double kv_utilization = 0;   ///< mean over the instances
  std::int64_t ready_instances = 0;
};

/// State of the instances of a pool at one instant.
struct PoolSample {
  std::int64_t in_flight = 0;  ///< legs from the choice of their instance to their end
  std::int64_t waiting = 0;    ///< in the engines' queues
  std::int64_t running = 0;    ///< in the engines' batches
  double kv_utilization = 0;   ///< mean over its instances
  std::int64_t ready_instances = 0;
};

/// State of both pools at one instant.
struct PoolsSample {
  PoolSample prefill;
  PoolSample decode;
  std::int64_t transfers = 0;  ///< of prompts: under way, or waiting for the link
};

/// Samples of gateway and fleet in order of time.
struct Timeline {
  std::vector<Sample> samples;
  std::vector<PoolsSample> pools;     ///< one per sample; empty without pools
  std::vector<TenantSample> tenants;  ///< one per sample and tenant, sample by sample
};

}  // namespace spillway::metrics
