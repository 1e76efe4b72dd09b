#include "cluster/randomness.h"

#include <algorithm>
#include <cstdint>
#include <variant>

#include "cluster/context.h"
#include "instance/plant/step_loop.h"
#include "sim/randomness.h"

namespace spillway::cluster {

namespace {

bool any_client(const Simulation& simulation, const auto& holds) {
  const auto* synthetic = std::get_if<workload::Synthetic>(&simulation.workload);
  return synthetic && std::any_of(synthetic->clients.begin(), synthetic->clients.end(), holds);
}

// Routing has a choice only with several instances.
bool has_choice(const Simulation& simulation) {
  std::int64_t count = 0;
  for (const instance::InstanceGroup& group : simulation.instances) count += group.count;
  return count > 1;
}

bool can_change(const Simulation& simulation, sim::Stream stream) {
  using sim::can_draw;
  using sim::Stream;
  using workload::Client;
  const gateway::Gateway& gateway = simulation.gateway;
  switch (stream) {
    case Stream::arrivals:
      return any_client(simulation, [](const Client& client) { return can_draw(client.arrivals); });
    case Stream::input_lengths:
      return any_client(simulation,
                        [](const Client& client) { return can_draw(client.input_tokens); });
    case Stream::output_lengths:
      return any_client(simulation,
                        [](const Client& client) { return can_draw(client.output_tokens); });
    case Stream::admission:
      return can_draw(gateway.admission);
    case Stream::router:
      return has_choice(simulation) && can_draw(simulation.router);
    case Stream::step_durations:
      return can_draw(simulation.instances);
    case Stream::controller:
      return can_draw(gateway.controller);
    case Stream::scrapes:
      return can_draw(simulation.signals);
    case Stream::gateways:
      return gateway.replicas > 1 && gateway.split == gateway::Split::random;
    case Stream::retries:
      return can_draw(simulation.reaction) ||
             std::any_of(simulation.tenants.begin(), simulation.tenants.end(),
                         [](const workload::Tenant& tenant) { return can_draw(tenant.reaction); });
    case Stream::drafts:
      return std::ranges::any_of(simulation.instances, [](const instance::InstanceGroup& group) {
        return std::holds_alternative<instance::StepLoop>(group.plant) &&
               group.speculative_decoding.draws();
      });
    case Stream::predictions:
      return simulation.length_prediction.draws() && reads_output_lengths(simulation);
    case Stream::breakdowns:
      return can_draw(simulation.fleet.breakdowns);
    case Stream::traffic: {
      const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
      return trace && can_draw(trace->transforms);
    }
  }
  return false;
}

}  // namespace

std::vector<sim::Stream> random_streams(const Simulation& simulation) {
  std::vector<sim::Stream> found;
  for (std::size_t i = 1; i <= sim::kStreamNames.size(); ++i) {
    const auto stream = static_cast<sim::Stream>(i);
    if (can_change(simulation, stream)) found.push_back(stream);
  }
  return found;
}

}  // namespace spillway::cluster
