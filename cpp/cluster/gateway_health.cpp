#include "cluster/gateway_health.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "sim/phase.h"

namespace spillway::cluster {

using sim::Time;
using workload::Outcome;

// The events of instances come first at an instant.
GatewayHealth::GatewayHealth(Context& context, Fleet& fleet, Gateways& gateways,
                             LoadEvents& load_events, const SettingChanges& changes)
    : context_(context),
      fleet_(fleet),
      gateways_(gateways),
      load_events_(load_events),
      changes_(changes),
      first_tie_(1 + static_cast<std::uint32_t>(num_instances(context.simulation))),
      of_(static_cast<std::size_t>(context.simulation.gateway.replicas)) {}

void GatewayHealth::start() {
  for (const Change& change : context_.simulation.changes) {
    for (const fleet::Fault& fault : change.faults) {
      const auto* crash = std::get_if<fleet::GatewayCrash>(&fault);
      if (crash) add(*crash, sim::from_seconds(change.at_s));
    }
  }
}

void GatewayHealth::add(const fleet::GatewayCrash& fault, Time at) {
  push(at, static_cast<std::size_t>(fault.gateway), {.fault = fault});
}

void GatewayHealth::push(Time at, std::size_t replica, const Timer& timer) {
  const auto subject = static_cast<std::uint32_t>(timers_.size());
  timers_.push_back(timer);
  context_.events.push(
      {at, sim::Phase::fleet_change, first_tie_ + static_cast<std::uint32_t>(replica), subject});
}

std::vector<sim::RequestId> GatewayHealth::handle(const sim::Event& event) {
  const std::size_t replica = event.tie() - first_tie_;
  const Timer timer = timers_[event.subject()];
  OfReplica& of = of_[replica];
  if (timer.returns) {
    of.is_down = false;
    reports_[of.report].ended = context_.now;
    revive(replica);
    return {};
  }
  if (std::exchange(of.is_down, true)) return {};
  of.report = reports_.size();
  reports_.push_back({.kind = fleet::GatewayCrash::kind,
                      .gateway = static_cast<std::int32_t>(replica),
                      .began = context_.now,
                      .detected = context_.now});
  if (timer.fault.for_s) {
    // At least one nanosecond, so that it crashes and returns at two instants.
    const Time span = std::max(sim::from_seconds(*timer.fault.for_s), Time{1});
    push(context_.now + span, replica, {.returns = true, .fault = {}});
  }
  const std::size_t process = gateways_.replicas()[replica]->index();
  report_of_.resize(std::max(report_of_.size(), process + 1));
  report_of_[process] = of.report;
  return gateways_.crash(replica);
}

// The queues are empty, so nothing is to be drained.
void GatewayHealth::revive(std::size_t replica) {
  GatewayReplica& gateway = gateways_.revive(replica);
  gateway.start(fleet_.num_ready());
  const auto change = changes_.since_start();
  load_events_.add_gateway(change ? change->to.simulation.busy_monitor
                                  : context_.simulation.busy_monitor);
  gateway.set_busy_workers(load_events_.known_to(gateway.index()));
  if (!change || !change->concerns_gateways) return;
  std::ignore = gateway.change(change->from, change->to.simulation, change->of_tenants());
}

bool GatewayHealth::lose(sim::RequestId id) {
  if (context_.states.outcome[id.index()] == Outcome::running) {
    context_.states.reason[id.index()] = workload::kGatewayLost;
    fleet_.cancel(id, Outcome::failed);
    return false;
  }
  // The instance has refused it, or has it in its front end.
  if (sim::is_set(context_.states.dispatched[id.index()])) return false;
  std::ignore = gateways_.of(id).lose(id);
  note_loss(id);
  return true;
}

void GatewayHealth::released(sim::RequestId id) {
  const bool is_lost = context_.states.outcome[id.index()] == Outcome::failed &&
                       workload::is_gateway_lost(context_.states.reason[id.index()]);
  if (is_lost) note_loss(id);
}

void GatewayHealth::note_loss(sim::RequestId id) {
  FaultReport& report = reports_[report_of_[gateways_.of(id).index()]];
  ++report.loss.requests;
  report.loss.time += std::max(report.began - context_.requests.arrival(id), Time{0});
}

std::unique_ptr<GatewayHealth> make_gateway_health(Context& context, Fleet& fleet,
                                                   Gateways& gateways, LoadEvents& load_events,
                                                   const SettingChanges& changes) {
  if (!gateways.may_crash()) return nullptr;
  return std::make_unique<GatewayHealth>(context, fleet, gateways, load_events, changes);
}

bool add_faults(std::span<const fleet::Fault> faults, Time at, Health* instances,
                GatewayHealth* gateways) {
  const auto is_possible = [&](const fleet::Fault& fault) {
    return fleet::is_of_gateway(fault) ? gateways != nullptr : instances != nullptr;
  };
  if (!std::ranges::all_of(faults, is_possible)) return false;
  for (const fleet::Fault& fault : faults) {
    const auto* crash = std::get_if<fleet::GatewayCrash>(&fault);
    crash ? gateways->add(*crash, at) : instances->add(fault, at);
  }
  return true;
}

}  // namespace spillway::cluster
