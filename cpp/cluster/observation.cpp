#include "cluster/observation.h"

#include "cluster/context.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/sampler.h"

namespace spillway::cluster {

Observation true_state(const Context& context, Fleet& fleet, const Gateways& gateways,
                       const Sampler& sampler) {
  Observation seen{.state = {.at = context.now}, .tenants = {}, .instances = {}};
  seen.tenants.resize(context.requests.tenants.size());
  fleet.add_to(seen.state, seen.tenants);
  gateways.add_to(seen.state, seen.tenants);
  sampler.add_to(seen.tenants);
  return seen;
}

Observation seen_state(const Context& context, Fleet& fleet, const Gateways& gateways,
                       const Sampler& sampler) {
  Observation seen = true_state(context, fleet, gateways, sampler);
  seen.state.waiting = seen.state.running = 0;
  seen.state.kv_utilization = 0;
  if (fleet.num_ready() == 0) return seen;
  for (const sim::InstanceId id : fleet.ready()) {
    SeenInstance& instance = seen.instances.emplace_back();
    instance.id = id;
    instance.signal = fleet.seen(id);
    for (const auto& gateway : gateways.replicas()) {
      instance.in_flight += gateway->local_state().in_flight[id.index()];
    }
    seen.state.waiting += instance.signal.waiting;
    seen.state.running += instance.signal.running;
    seen.state.kv_utilization += instance.signal.kv_utilization;
  }
  seen.state.kv_utilization /= static_cast<double>(seen.instances.size());
  return seen;
}

}  // namespace spillway::cluster
