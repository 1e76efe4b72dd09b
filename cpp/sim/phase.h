#pragma once

#include <cstdint>

namespace spillway::sim {

/// Order of events within one instant: the determinism contract. An event that is created for the
/// current instant takes the place of its phase, so an admission's drain precedes the next
/// admission. Ties within a phase are broken by the key named here, then in order of creation,
/// which is the order in which the stage before handed the requests on: those dispatched at one
/// instant are routed, and enter each instance, in the order of dispatch.
enum class Phase : std::uint8_t {
  step_end,         ///< first tokens, completions, KV release, counters (instance)
  first_token,      ///< of a step whose effects came at its start (instance)
  permit_release,   ///< concurrency permits return to the gateway
  client_reaction,  ///< retries, next turns
  set_points,       ///< controller ticks, thresholds, worker changes (tenant)
  telemetry,        ///< instances publish what they report
  timeline_sample,
  queue_drain,  ///< dispatch from the tenant queues (tenant)
  expiry,       ///< queue time-outs: gateway, then instance (tenant)
  arrival,      ///< of the source, then of users, then of retries (source order)
  admission,    ///< in order of arrival
  routing,      ///< in order of dispatch
  ingress,      ///< worker-side caps, entry to the engine's queue (instance)
  step_start,   ///< sees everything that happened at this instant (instance)
};

}  // namespace spillway::sim
