#include "cluster/gateways.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>

#include "gateway/control_loop.h"
#include "sim/error.h"
#include "sim/mix.h"
#include "sim/rng.h"

namespace spillway::cluster {

using sim::RequestId;

namespace {

// Of a random choice among other replicas: so many values that each is chosen evenly.
constexpr std::size_t kManyTurns = std::size_t{1} << 32U;

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
      ranks_(ranks.begin(), ranks.end()),
      meter_(meter),
      may_crash_(has_gateway_faults(context.simulation)),
      is_single_(context.simulation.gateway.replicas == 1 && !may_crash_),
      decisions_(static_cast<std::size_t>(context.simulation.metrics.traced_candidates),
                 router::rates_ranks(context.simulation.router) ? num_engines(context.simulation)
                                                                : num_instances(context.simulation),
                 has_pools(context.simulation)) {
  const auto replicas = static_cast<std::size_t>(context.simulation.gateway.replicas);
  processes_.reserve(replicas);
  for (std::size_t i = 0; i < replicas; ++i) replicas_.push_back(add(i));
}

GatewayReplica* Gateways::add(std::size_t replica) {
  processes_.push_back(std::make_unique<GatewayReplica>(context_, processes_.size(), replica,
                                                        ranks_, decisions_, meter_));
  return processes_.back().get();
}

std::size_t Gateways::index_of(RequestId id) const {
  if (may_crash_) return assigned_[id.index()];
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

// Only the requests of replicas that are down go elsewhere, evenly.
void Gateways::assign(RequestId id) {
  const std::size_t n = replicas_.size();
  const std::uint32_t row = context_.requests.row(id);
  sim::Draws draws(context_.seed, sim::Stream::gateways, row);
  const auto choose = [&](std::uint64_t key) {
    GatewayReplica* const own = replicas_[key % n];
    if (!own->has_crashed()) return own;
    std::vector<GatewayReplica*> others;
    std::ranges::copy_if(replicas_, std::back_inserter(others),
                         [](const GatewayReplica* other) { return !other->has_crashed(); });
    return others.empty() ? own : others[key / n % others.size()];
  };
  const auto key = [&]() -> std::uint64_t {
    switch (context_.simulation.gateway.split) {
      case gateway::Split::round_robin:
        return row;
      case gateway::Split::tenant_hash:
        return sim::mix(context_.requests.tenant(id));
      case gateway::Split::random:
        break;
    }
    const std::uint64_t first = draws.below(n);
    return first + n * draws.below(kManyTurns);
  };
  if (assigned_.size() < context_.requests.capacity()) {
    assigned_.resize(context_.requests.capacity());
  }
  assigned_[id.index()] = static_cast<std::uint32_t>(choose(key())->index());
}

std::vector<RequestId> Gateways::crash(std::size_t replica) {
  GatewayReplica& own = *replicas_[replica];
  own.crash();
  std::vector<RequestId> found;
  for (std::size_t i = 0; i < assigned_.size(); ++i) {
    const workload::Outcome where = context_.states.outcome[i];
    const bool waits = where == workload::Outcome::queued || where == workload::Outcome::running;
    if (waits && assigned_[i] == own.index()) found.emplace_back(i);
  }
  std::ranges::sort(found, {}, [&](RequestId id) { return context_.requests.row(id); });
  return found;
}

GatewayReplica& Gateways::revive(std::size_t replica) {
  replicas_[replica] = add(replica);
  return *replicas_[replica];
}

gateway::GatewayCounters Gateways::counters() const {
  gateway::GatewayCounters all;
  for (const auto& process : processes_) all += process->pipeline().counters();
  return all;
}

fleet::FleetLoad Gateways::load(std::optional<sim::Time> since) const {
  const gateway::GatewayCounters all = counters();
  fleet::FleetLoad load{.queued = all.queued(), .shed = all.shed(), .in_flight = all.in_flight()};
  if (!since) return load;
  ControlSummary seen;
  for (const GatewayReplica* replica : replicas_) {
    if (!replica->has_crashed()) seen.add(replica->pipeline().control_log(), *since);
  }
  load.sensor = seen.sensor();
  load.limit_decreases = seen.decreases();
  return load;
}

bool Gateways::has_pending_work(bool awaits_workers) const {
  return std::ranges::any_of(
      processes_, [&](const auto& process) { return process->has_pending_work(awaits_workers); });
}

void Gateways::check() const {
  for (const auto& process : processes_) {
    if (!process->has_crashed()) continue;
    if (process->pipeline().counters().queued() != 0) {
      throw sim::InvariantError("requests wait at a replica of the gateway that has crashed");
    }
  }
  if (counters().in_flight() != context_.num_in_flight) {
    throw sim::InvariantError(
        "the permits of all gateways are not those of the requests in flight");
  }
}

void Gateways::add_to(metrics::Sample& state, std::span<metrics::TenantSample> tenants) const {
  for (const auto& process : processes_) {
    const gateway::Pipeline& pipeline = process->pipeline();
    state.in_flight += pipeline.counters().in_flight();
    if (!process->has_crashed()) state.permits += pipeline.limits().permits();
    for (std::size_t i = 0; i < tenants.size(); ++i) {
      tenants[i].queued += pipeline.queued(sim::TenantId{i});
      tenants[i].dispatched += pipeline.dispatched(sim::TenantId{i});
    }
  }
}

}  // namespace spillway::cluster
