#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "instance/instance.h"
#include "metrics/timeline.h"
#include "signals/signal_source.h"
#include "sim/ids.h"

namespace spillway::cluster {

struct Context;
class Fleet;
class Gateways;
class Sampler;

/// A ready instance as the gateway sees it, or any instance as it is.
struct SeenInstance {
  sim::InstanceId id;
  signals::InstanceSignal signal;  ///< as last reported, or true
  std::int64_t in_flight = 0;      ///< routed there and not finished: the gateways' own count
  bool is_ready = true;
  std::string_view state = "up";  ///< as in `Health::condition_of`; only of the true state
  instance::Counters counters;    ///< only of the true state
};

/// The state at an instant.
struct Observation {
  metrics::Sample state;  ///< of gateway and fleet; as reported or true
  std::vector<metrics::TenantSample> tenants;
  std::vector<SeenInstance> instances;
};

/// The true state now.
Observation true_state(const Context& context, Fleet& fleet, const Gateways& gateways,
                       const Sampler& sampler);
/// The state now as the gateway sees it, whose own counts are always fresh.
Observation seen_state(const Context& context, Fleet& fleet, const Gateways& gateways,
                       const Sampler& sampler);

}  // namespace spillway::cluster
