#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cluster/context.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/health.h"
#include "cluster/load_events.h"
#include "cluster/setting_changes.h"
#include "fleet/faults.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// When replicas of the gateway crash and return, by schedule, and what becomes of their requests.
/// Made only if they may crash. See README.md.
class GatewayHealth {
 public:
  GatewayHealth(Context& context, Fleet& fleet, Gateways& gateways, LoadEvents& load_events,
                const SettingChanges& changes);

  /// Schedules the faults of the simulation.
  void start();
  /// One more fault, at an instant after all that has happened.
  void add(const fleet::GatewayCrash& fault, sim::Time at);

  /// Whether an event of phase `fleet_change` is of a replica.
  bool owns(const sim::Event& event) const { return event.tie() >= first_tie_; }
  /// An event of a replica, which crashes or returns. Returns the requests that it loses.
  std::vector<sim::RequestId> handle(const sim::Event& event);

  /// Whether the replica of the request has crashed since it has taken it.
  bool has_lost(sim::RequestId id) const { return gateways_.of(id).has_crashed(); }
  /// The request fails for that: in an instance as if its client had left, elsewhere now. True: it
  /// has left. A request in transit is lost when it reaches the next stage, unless that refuses it.
  [[nodiscard]] bool lose(sim::RequestId id);
  /// The permit of a request of any replica is released.
  void released(sim::RequestId id);
  const std::vector<FaultReport>& reports() const { return reports_; }

 private:
  struct Timer {
    bool returns = false;
    fleet::GatewayCrash fault;  // that begins
  };
  struct OfReplica {
    bool is_down = false;
    std::size_t report = 0;  // of its latest crash
  };
  void revive(std::size_t replica);
  void note_loss(sim::RequestId id);
  void push(sim::Time at, std::size_t replica, const Timer& timer);

  Context& context_;
  Fleet& fleet_;
  Gateways& gateways_;
  LoadEvents& load_events_;
  const SettingChanges& changes_;
  std::uint32_t first_tie_;
  std::vector<OfReplica> of_;
  std::vector<std::size_t> report_of_;  // by process that has crashed
  std::vector<Timer> timers_;           // by the subject of their events
  std::vector<FaultReport> reports_;
};

/// Null unless replicas of the gateway may crash. The arguments must outlive it.
std::unique_ptr<GatewayHealth> make_gateway_health(Context& context, Fleet& fleet,
                                                   Gateways& gateways, LoadEvents& load_events,
                                                   const SettingChanges& changes);

/// Adds faults at an instant after all that has happened. False, without any effect: some of them
/// need an object that is null.
bool add_faults(std::span<const fleet::Fault> faults, sim::Time at, Health* instances,
                GatewayHealth* gateways);

}  // namespace spillway::cluster
