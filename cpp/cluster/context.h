#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster/changes.h"
#include "cluster/config.h"
#include "cluster/request_record.h"
#include "cluster/statistics.h"
#include "signals/needs.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::cluster {

/// The needs of all policies.
signals::Needs needs_of(const Simulation& simulation);
/// Whether anything depends on the busy workers.
bool depends_on_loads(const Simulation& simulation);
/// Whether a client may send another attempt while the last one is in the system (because its
/// server notices late, or as a second copy), and all requests are kept.
bool may_retry_beside(const Simulation& simulation);
/// Whether any client may send a second copy of a request.
bool has_hedges(const Simulation& simulation);
/// Whether any request names a model, itself or by its tenant.
bool names_models(const Simulation& simulation);
/// The models that groups of instances serve, and that tenants and requests name.
std::vector<std::string> models_of(const Simulation& simulation);
/// Whether requests may name models, also those from outside, and not go to every instance.
bool has_models(const Simulation& simulation);
/// Whether any policy may read predicted output lengths.
bool reads_output_lengths(const Simulation& simulation);
/// Whether instances may fail.
bool has_faults(const Simulation& simulation);
/// Whether replicas of the gateway may fail.
bool has_gateway_faults(const Simulation& simulation);
/// Whether requests of an instance that fails may go on at another one.
bool has_migration(const Simulation& simulation);
/// Whether any group of instances has a role of its own.
bool has_pools(const Simulation& simulation);
/// Whether each instance is in one of two pools: none has the role both.
bool has_separate_pools(const Simulation& simulation);
/// The instances in the pool of a role, in order; those of role both are in each.
std::vector<sim::InstanceId> instances_of(const Simulation& simulation, instance::Role role);
std::size_t num_instances(const Simulation& simulation);
/// Number of data-parallel ranks of all instances.
std::size_t num_engines(const Simulation& simulation);
/// Blocks per rank in the gateway's record of prompts: as stated, or as many as the largest KV
/// memory holds in blocks of the record's size.
std::int64_t prefix_index_blocks(const Simulation& simulation);

/// Of what happens every `period` after now: how many times come before the last one before
/// `until`.
inline std::int64_t periods_to_skip(sim::Time now, sim::Time period, sim::Time until) {
  if (period.ns <= 0 || until <= now) return 0;
  return std::max<std::int64_t>((until - now - sim::Time{1}).ns / period.ns - 1, 0);
}

/// The state that the actors of one run share: the requests, their states, the pending events and
/// the clock. An actor owns everything else.
struct Context {
  /// `offered`, `interrupted`, `is_observed`: as in RunOptions; `later`: versions of `of`.
  Context(const Simulation& of, std::uint64_t with_seed,
          std::shared_ptr<const workload::Requests> offered = nullptr,
          const std::function<bool()>& interrupted = {}, bool is_observed = false,
          std::span<const Version> later = {});
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Simulation& simulation;  ///< as it is at the start
  std::uint64_t seed;
  signals::Needs needs;  ///< of all policies
  bool follows_loads;    ///< whether anything depends on the busy workers
  bool may_change;       ///< whether settings may change during the run
  bool learns_lengths;   ///< whether predictions of output lengths learn
  bool counts_tenants;   ///< whether running counts by tenant are looked at
  std::shared_ptr<RequestRecord> record;
  workload::RequestTable& requests;  ///< of the record
  workload::RequestStates& states;   ///< of the record
  Statistics statistics;
  sim::EventQueue events;
  sim::Time now{0};
  sim::Time last_change{0};             ///< of a request or an instance
  sim::Time drains_over = sim::kUnset;  ///< instant at which phases after the drains have begun
  std::int64_t num_in_flight = 0;       ///< dispatched by any gateway, and not released

  /// Advances the clock to the event.
  void begin(const sim::Event& event) {
    const sim::Phase phase = event.phase();
    now = event.time();
    // Events of other phases change no request and no instance, or may have no effect.
    const bool is_change =
        phase <= sim::Phase::permit_release || phase >= sim::Phase::source_arrival;
    if (is_change) last_change = now;
    if (phase > sim::Phase::dispatch_attempt) drains_over = now;
  }
  bool streams() const { return simulation.metrics.streaming; }
  /// Whether an event after `delay` would be the next one: its effect may then take place
  /// immediately, without the event queue.
  bool can_run_inline(sim::Time delay) { return delay == sim::Time{0} && !events.is_due(now); }
  sim::TenantId tenant_of(sim::RequestId id) const { return sim::TenantId{requests.tenant(id)}; }
  /// Precondition: the request has been routed.
  sim::InstanceId instance_of(sim::RequestId id) const {
    return sim::InstanceId{static_cast<std::size_t>(states.instance[id.index()])};
  }
};

}  // namespace spillway::cluster
