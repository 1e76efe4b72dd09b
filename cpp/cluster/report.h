#pragma once

#include <optional>
#include <span>

#include "cluster/clients.h"
#include "cluster/config.h"
#include "cluster/context.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/load_events.h"
#include "cluster/output.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

class GatewayHealth;
class Migrations;
class Pools;

/// The final state of a run.
struct FinalState {
  Context& context;
  const Clients& clients;
  const Gateways& gateways;
  const Fleet& fleet;  ///< closed
  const LoadEvents& load_events;
  const Pools* pools;                   ///< null without pools
  const Migrations* migrations;         ///< null unless requests migrate
  const GatewayHealth* gateway_health;  ///< null unless replicas of the gateway crash
  sim::Time horizon;
};

/// The output except for its record, decisions and timeline. Precondition: `Statistics::add_rest`.
/// Throws InvariantError if the ledger does not balance.
Output report(const FinalState& end);

/// Share of prompt blocks that were found in KV memory, over all lookups; unset without lookups.
/// With reported latencies, the mean over instances of the share of hits among all allocated
/// blocks.
std::optional<double> cache_hit_rate(std::span<const InstanceReport> instances,
                                     const metrics::Metrics& config);

}  // namespace spillway::cluster
