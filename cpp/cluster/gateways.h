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

/// The replicas of the gateway, over which requests are distributed. One that returns from a crash
/// is another process: an object of its own.
class Gateways {
 public:
  /// The arguments are those of a replica.
  Gateways(Context& context, std::span<const std::size_t> ranks, gateway::ServiceMeter* meter);

  /// The replica of the request. Where replicas may crash: after `take`.
  [[gnu::always_inline]] GatewayReplica& of(sim::RequestId id) {
    return is_single_ ? *processes_.front() : *processes_[index_of(id)];
  }
  /// The replica that gets the attempt, which begins. It has crashed if none is there.
  [[gnu::always_inline]] GatewayReplica& take(sim::RequestId id) {
    if (may_crash_) [[unlikely]]
      assign(id);
    return of(id);
  }
  GatewayReplica& at(std::size_t index) { return *processes_[index]; }
  /// All processes: the replicas, and what they were before crashes.
  std::span<const std::unique_ptr<GatewayReplica>> processes() const { return processes_; }
  /// The latest process of each replica.
  std::span<GatewayReplica* const> replicas() const { return replicas_; }

  /// Whether replicas may crash.
  bool may_crash() const { return may_crash_; }
  /// The replica ends. Returns its requests that wait in a queue or in an instance, by row.
  std::vector<sim::RequestId> crash(std::size_t replica);
  /// The replica is there again, as it was at the start.
  GatewayReplica& revive(std::size_t replica);

  /// Totals over the replicas.
  gateway::GatewayCounters counters() const;
  /// The load that autoscalers see; with `since`, also what the controllers did after that instant.
  fleet::FleetLoad load(std::optional<sim::Time> since) const;
  /// The decisions of the routers.
  router::DecisionLog& decisions() { return decisions_; }
  const router::DecisionLog& decisions() const { return decisions_; }
  /// Whether requests there have pending events, apart from the effects of ticks.
  bool has_pending_work(bool awaits_workers) const;
  /// Throws InvariantError if the books of the replicas do not balance.
  void check() const;
  /// Adds the state of the gateways, in total and per tenant.
  void add_to(metrics::Sample& state, std::span<metrics::TenantSample> tenants) const;

 private:
  std::size_t index_of(sim::RequestId id) const;
  void assign(sim::RequestId id);
  GatewayReplica* add(std::size_t replica);

  Context& context_;
  std::vector<std::size_t> ranks_;
  gateway::ServiceMeter* meter_;
  bool may_crash_;
  bool is_single_;
  router::DecisionLog decisions_;
  std::vector<std::unique_ptr<GatewayReplica>> processes_;
  std::vector<GatewayReplica*> replicas_;
  std::vector<std::uint32_t> assigned_;  // process by request; only where replicas may crash
};

}  // namespace spillway::cluster
