#include "cluster/gateways.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "gateway/control_loop.h"
#include "sim/mix.h"
#include "sim/rng.h"

namespace spillway::cluster {

namespace {

/// What the controllers of the replicas measured and did since an instant.
class ControlSummary {
 public:
  void add(std::span<const gateway::ControlRecord> log, sim::Time since) {
    if (log.empty()) return;
    if (const double value = log.back().value; !std::isnan(value)) {
      sum_ += value;
      ++num_values_;
    }
    // Ticks that repeat the last one may follow.
    if (log.back().at <= since && log.back().repeats > 0) ++ticks_;
    for (auto tick = log.rbegin(); tick != log.rend() && tick->at > since; ++tick) {
      ticks_ += 1 + tick->repeats;
      if (tick->action == gateway::ControlAction::decrease) decreases_ += 1 + tick->repeats;
    }
  }
  double sensor() const { return sum_ / num_values_; }
  double decreases() const { return static_cast<double>(decreases_) / static_cast<double>(ticks_); }

 private:
  double sum_ = 0;
  double num_values_ = 0;
  std::int64_t ticks_ = 0;
  std::int64_t decreases_ = 0;
};

}  // namespace

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

fleet::FleetLoad Gateways::load(std::optional<sim::Time> since) const {
  const gateway::GatewayCounters all = counters();
  fleet::FleetLoad load{.queued = all.queued(), .shed = all.shed(), .in_flight = all.in_flight()};
  if (!since) return load;
  ControlSummary seen;
  for (const auto& replica : replicas_) seen.add(replica->pipeline().control_log(), *since);
  load.sensor = seen.sensor();
  load.limit_decreases = seen.decreases();
  return load;
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
