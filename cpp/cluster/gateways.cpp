#include "cluster/gateways.h"

#include <algorithm>

#include "sim/mix.h"
#include "sim/rng.h"

namespace spillway::cluster {

Gateways::Gateways(Context& context, std::span<const std::size_t> ranks,
                   gateway::ServiceMeter* meter)
    : context_(context),
      decisions_(static_cast<std::size_t>(context.simulation.metrics.traced_candidates),
                 router::rates_ranks(context.simulation.router)
                     ? num_engines(context.simulation)
                     : num_instances(context.simulation)) {
  const auto replicas = static_cast<std::size_t>(context.simulation.gateway.replicas);
  replicas_.reserve(replicas);
  for (std::size_t i = 0; i < replicas; ++i) {
    replicas_.push_back(std::make_unique<GatewayReplica>(context, i, ranks, decisions_, meter));
  }
}

std::size_t Gateways::index_of(sim::RequestId id) const {
  const std::size_t n = replicas_.size();
  const std::uint32_t row = context_.requests.row(id);
  switch (context_.simulation.gateway.split) {
    case gateway::Split::round_robin:
      return row % n;
    case gateway::Split::tenant_hash:
      return sim::mix(context_.requests.tenant(id)) % n;
    case gateway::Split::random:
      break;
  }
  return sim::Draws(context_.seed, sim::Stream::gateways, row).below(n);
}

gateway::GatewayCounters Gateways::counters() const {
  gateway::GatewayCounters all;
  for (const auto& replica : replicas_) all += replica->pipeline().counters();
  return all;
}

bool Gateways::has_pending_work(bool awaits_workers) const {
  return std::any_of(replicas_.begin(), replicas_.end(), [&](const auto& replica) {
    return replica->has_pending_work(awaits_workers);
  });
}

void Gateways::add_to(metrics::Sample& state, std::span<metrics::TenantSample> tenants) const {
  for (const auto& replica : replicas_) {
    const gateway::Pipeline& pipeline = replica->pipeline();
    state.in_flight += pipeline.counters().in_flight();
    state.permits += pipeline.limits().permits();
    for (std::size_t i = 0; i < tenants.size(); ++i) {
      tenants[i].queued += pipeline.queued(sim::TenantId{i});
      tenants[i].dispatched += pipeline.dispatched(sim::TenantId{i});
    }
  }
}

}  // namespace spillway::cluster
