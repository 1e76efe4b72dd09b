#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/config.h"
#include "gateway/config.h"
#include "instance/group.h"
#include "metrics/config.h"
#include "router/policies.h"
#include "signals/busy_monitor_config.h"
#include "signals/prefix_index_config.h"
#include "signals/transports.h"
#include "sim/error.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/policies.h"
#include "workload/reaction_config.h"
#include "workload/tenants.h"

namespace spillway::cluster {

/// One experiment, in the order in which a request meets its parts.
struct Simulation {
  workload::Workload workload = workload::Synthetic{};
  std::vector<workload::Tenant> tenants;
  std::vector<workload::SloClass> slo_classes = workload::default_slo_classes();
  workload::Reaction reaction;
  gateway::Gateway gateway;
  router::Router router = router::RoundRobin{};
  signals::Signals signals = signals::Live{};
  signals::PrefixIndexConfig prefix_index;
  signals::BusyMonitor busy_monitor;
  std::vector<instance::InstanceGroup> instances{instance::InstanceGroup{}};
  fleet::Fleet fleet;
  metrics::Metrics metrics;
  std::optional<double> horizon_s;
  double warm_up_s = 0;
  std::int64_t quantum_ns = 1;

  static constexpr std::string_view type_name = "Simulation";
  static constexpr std::string_view doc =
      "One experiment: a workload that meets a gateway, a router and a fleet of instances.";
  static void fields(auto field) {
    using S = Simulation;
    field("workload", &S::workload, "Who asks what, and when.");
    field("tenants", &S::tenants,
          "Tenants and their weights; those that only occur in the workload get the defaults.");
    field("slo_classes", &S::slo_classes,
          "Classes of service; those that only occur in a trace get the defaults.");
    field("reaction", &S::reaction,
          "How long clients wait and when they ask again; they wait for ever by default.");
    field("gateway", &S::gateway, "If, when and for whom a request is let through.");
    field("router", &S::router, "Which instance takes a dispatched request.");
    field("signals", &S::signals, "How old the state of the instances is that decisions see.");
    field("prefix_index", &S::prefix_index,
          "The gateway's own record of which prompts went where.");
    field("busy_monitor", &S::busy_monitor,
          "When a worker is busy, as the gateway sees it; without thresholds, never by its "
          "load.");
    field("instances", &S::instances, "The fleet: one or more groups of equal instances.");
    field("fleet", &S::fleet, "Which of these instances are there when; all of them by default.");
    field("metrics", &S::metrics, "What is measured and how.");
    field("horizon_s", &S::horizon_s,
          "Nothing happens after this instant; absent: the run ends when all is done.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("warm_up_s", &S::warm_up_s,
          "Requests that arrive earlier are simulated but left out of the summary.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("quantum_ns", &S::quantum_ns, "Durations are truncated to whole multiples of this.")
        .unit("ns")
        .range(sim::between(1, 1e9));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

}  // namespace spillway::cluster
