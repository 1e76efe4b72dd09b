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

/// How everything stands when a run is over.
struct FinalState {
  Context& context;
  const Clients& clients;
  const Gateways& gateways;
  const Fleet& fleet;  ///< closed
  const LoadEvents& load_events;
  sim::Time horizon;
};

/// The output but for its record, decisions and timeline. Precondition: `Statistics::add_rest`.
/// Throws InvariantError if the books do not balance.
Output report(const FinalState& end);

/// Share of prompt blocks that were found in KV memory: of all lookups, none without any. With
/// reported latencies the mean over instances of the share of hits in all blocks that requests got.
std::optional<double> cache_hit_rate(std::span<const InstanceReport> instances,
                                     const metrics::Metrics& config);

}  // namespace spillway::cluster
