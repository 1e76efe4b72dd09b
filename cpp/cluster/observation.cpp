#include "cluster/observation.h"

#include "cluster/context.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/sampler.h"

namespace spillway::cluster {

namespace {

std::int64_t in_flight_at(const Gateways& gateways, sim::InstanceId id) {
  std::int64_t sum = 0;
  for (const auto& gateway : gateways.processes()) {
    sum += gateway->in_flight(id);
  }
  return sum;
}

Observation totals(const Context& context, Fleet& fleet, const Gateways& gateways,
                   const Sampler& sampler) {
  Observation seen{.state = {.at = context.now}, .tenants = {}, .instances = {}};
  seen.tenants.resize(context.requests.tenants.size());
  fleet.add_to(seen.state, seen.tenants);
  gateways.add_to(seen.state, seen.tenants);
  sampler.add_to(seen.tenants);
  return seen;
}

}  // namespace

Observation true_state(const Context& context, Fleet& fleet, const Gateways& gateways,
                       const Sampler& sampler) {
  Observation seen = totals(context, fleet, gateways, sampler);
  for (std::size_t i = 0; i < fleet.instances().size(); ++i) {
    const sim::InstanceId id{i};
    seen.instances.push_back({.id = id,
                              .signal = fleet.at(id).read(context.now),
                              .in_flight = in_flight_at(gateways, id),
                              .is_ready = fleet.is_ready(id),
                              .state = fleet.condition_of(id),
                              .counters = fleet.counters(id)});
  }
  return seen;
}

Observation seen_state(const Context& context, Fleet& fleet, const Gateways& gateways,
                       const Sampler& sampler) {
  Observation seen = totals(context, fleet, gateways, sampler);
  seen.state.waiting = seen.state.running = 0;
  seen.state.kv_utilization = 0;
  if (fleet.num_ready() == 0) return seen;
  for (const sim::InstanceId id : fleet.ready()) {
    SeenInstance& instance = seen.instances.emplace_back();
    instance.id = id;
    instance.signal = fleet.seen(id);
    instance.in_flight = in_flight_at(gateways, id);
    seen.state.waiting += instance.signal.waiting;
    seen.state.running += instance.signal.running;
    seen.state.kv_utilization += instance.signal.kv_utilization;
  }
  seen.state.kv_utilization /= static_cast<double>(seen.instances.size());
  return seen;
}

}  // namespace spillway::cluster
