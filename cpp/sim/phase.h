#pragma once

#include <cstdint>

namespace spillway::sim {

/// Order of events within one instant: the determinism contract. An event that is created for the
/// current instant takes the place of its phase, so an admission's drain precedes the next
/// admission. Ties within a phase are broken by the key given below, then by order of creation,
/// which is the order in which the previous stage passed the requests on: requests dispatched at
/// one instant are routed, and enter each instance, in the order of dispatch.
///
/// The subject of an event is the key where one is given, otherwise a request.
enum class Phase : std::uint8_t {
  step_end,          ///< first tokens, completions, KV release, counters (instance)
  transfer_end,      ///< prompts have arrived (the link's state)
  first_token,       ///< of a step whose effects took place at its start (instance)
  permit_release,    ///< concurrency permits return to the gateway
  client_reaction,   ///< retries, next turns
  settings_change,   ///< scheduled (position in the list of changes)
  controller_tick,   ///< (replica of the gateway)
  fleet_change,      ///< target, autoscaler, readiness (no subject)
  telemetry,         ///< a worker is read, or its reading arrives (instance)
  timeline_sample,   ///< of the timeline, then of fitted states
  queue_drain,       ///< dispatch from the tenant queues (replica)
  dispatch_attempt,  ///< periodic dispatch (replica, in order of creation)
  queue_expiry,      ///< time-outs of queued requests (replica)
  instance_expiry,   ///< time-outs at the ingress of an instance (instance)
  source_arrival,    ///< the next request of the source (no subject)
  user_arrival,      ///< the next request of a closed-loop user (user, in order of creation)
  retry_arrival,     ///< a retry of a request
  outside_arrival,   ///< a request from outside the workload (position among those of the changes)
  admission,         ///< in order of arrival
  routing,           ///< in order of dispatch
  ingress,           ///< entry to the engine's queue, or a free place at an ingress (instance)
  leg_entry,         ///< the same in a fleet with roles (instance)
  step_start,        ///< sees everything that happened at this instant (instance)
};

}  // namespace spillway::sim
