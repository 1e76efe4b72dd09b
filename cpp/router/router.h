#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "router/decisions.h"
#include "router/policies.h"
#include "signals/view.h"
#include "sim/ids.h"

namespace spillway::router {

/// Sends dispatched requests to instances and counts how many are in flight on each: routed and not
/// yet finished.
class Dispatcher {
 public:
  /// `traced_candidates`: how many candidates of every decision are logged; 0: no log.
  Dispatcher(const Router& config, std::size_t num_instances, std::uint64_t seed,
             std::size_t traced_candidates);

  sim::InstanceId route(const signals::RequestView& request, const signals::View& view,
                        sim::Time now);
  void finished(sim::InstanceId instance) { --in_flight_[instance.index()]; }
  std::span<const std::int32_t> in_flight() const { return in_flight_; }
  const DecisionLog& log() const { return log_; }
  DecisionLog take_log() { return std::move(log_); }

 private:
  std::unique_ptr<RoutingPolicy> policy_;
  std::uint64_t seed_;
  std::vector<std::int32_t> in_flight_;
  DecisionLog log_;
};

/// Whether the policy reads the gateway's own record of what was sent where.
bool reads_prefix_index(const Router& config);

}  // namespace spillway::router
