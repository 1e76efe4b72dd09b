#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cluster/context.h"
#include "cluster/gateway_replica.h"
#include "fleet/load.h"
#include "gateway/pipeline.h"
#include "metrics/timeline.h"
#include "router/decisions.h"
#include "sim/ids.h"

namespace spillway::cluster {

/// The replicas of the gateway, over which requests are distributed.
class Gateways {
 public:
  /// The arguments are those of a replica.
  Gateways(Context& context, std::span<const std::size_t> ranks, gateway::ServiceMeter* meter);

  /// The replica of the request.
  [[gnu::always_inline]] GatewayReplica& of(sim::RequestId id) {
    return replicas_.size() == 1 ? *replicas_.front() : *replicas_[index_of(id)];
  }
  GatewayReplica& at(std::size_t index) { return *replicas_[index]; }
  std::span<const std::unique_ptr<GatewayReplica>> replicas() const { return replicas_; }

  /// Totals over the replicas.
  gateway::GatewayCounters counters() const;
  /// The load that autoscalers see; with `since`, also what the controllers did after that instant.
  fleet::FleetLoad load(std::optional<sim::Time> since) const;
  /// The decisions of the routers.
  router::DecisionLog& decisions() { return decisions_; }
  const router::DecisionLog& decisions() const { return decisions_; }
  /// Whether requests there have pending events, apart from the effects of ticks.
  bool has_pending_work(bool awaits_workers) const;
  /// Adds the state of the gateways, in total and per tenant.
  void add_to(metrics::Sample& state, std::span<metrics::TenantSample> tenants) const;

 private:
  std::size_t index_of(sim::RequestId id) const;

  const Context& context_;
  router::DecisionLog decisions_;
  std::vector<std::unique_ptr<GatewayReplica>> replicas_;
};

}  // namespace spillway::cluster
