#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cluster/context.h"
#include "metrics/timeline.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::cluster {

/// The timeline: running counts per tenant, and the state of gateway and fleet, sampled
/// periodically.
class Sampler {
 public:
  explicit Sampler(Context& context);

  /// Schedules the first sample now, if there is a timeline.
  void start();
  void submitted(sim::RequestId id) { count(id, &metrics::TenantSample::submitted); }
  void shed(sim::RequestId id) { count(id, &metrics::TenantSample::shed); }
  /// The request has left a queue without being dispatched.
  void dropped(sim::RequestId id) {
    if (context_.states.outcome[id.index()] != workload::Outcome::cancelled) shed(id);
  }
  void released(sim::RequestId id, workload::Outcome outcome) {
    if (outcome != workload::Outcome::completed || counts_.empty()) return;
    count(id, &metrics::TenantSample::completed);
    if (context_.statistics.collector().is_good(id)) count(id, &metrics::TenantSample::good);
  }

  /// Adds a sample. `tenants`: queued, dispatched and emitted of each tenant at this instant.
  /// `continues`: another sample follows.
  void sample(const metrics::Sample& state, std::span<const metrics::TenantSample> tenants,
              bool continues);
  /// Adds the pools of the last sample.
  void add(const metrics::PoolsSample& pools) { timeline_.pools.push_back(pools); }
  /// Adds the running counts.
  void add_to(std::span<metrics::TenantSample> tenants) const;
  metrics::Timeline take_timeline() { return std::move(timeline_); }

 private:
  void count(sim::RequestId id, std::int64_t metrics::TenantSample::* what) {
    if (!counts_.empty()) ++(counts_[context_.requests.tenant(id)].*what);
  }

  Context& context_;
  sim::Time step_{0};
  std::vector<metrics::TenantSample> counts_;  // by tenant; empty if nothing looks at them
  metrics::Timeline timeline_;
};

}  // namespace spillway::cluster
