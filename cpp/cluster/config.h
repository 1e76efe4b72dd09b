#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/change.h"
#include "fleet/config.h"
#include "gateway/config.h"
#include "instance/group.h"
#include "metrics/config.h"
#include "router/disaggregation.h"
#include "router/policies.h"
#include "signals/busy_monitor_config.h"
#include "signals/prefix_index_config.h"
#include "signals/transports.h"
#include "sim/error.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/length_prediction.h"
#include "workload/policies.h"
#include "workload/reaction_config.h"
#include "workload/tenants.h"

namespace spillway::cluster {

/// One experiment, in the order in which a request passes through its parts.
struct Simulation {
  workload::Workload workload = workload::Synthetic{};
  std::vector<workload::Tenant> tenants;
  std::vector<workload::SloClass> slo_classes = workload::default_slo_classes();
  workload::Reaction reaction;
  workload::LengthPrediction length_prediction;
  gateway::Gateway gateway;
  router::Router router = router::RoundRobin{};
  router::Disaggregation disaggregation;
  signals::Signals signals = signals::Live{};
  signals::PrefixIndexConfig prefix_index;
  signals::BusyMonitor busy_monitor;
  std::vector<instance::InstanceGroup> instances{instance::InstanceGroup{}};
  fleet::Fleet fleet;
  metrics::Metrics metrics;
  std::optional<double> horizon_s;
  double warm_up_s = 0;
  std::int64_t quantum_ns = 1;
  std::vector<Change> changes;
  /// No setting: whether a session lets instances fail of which this states no fault.
  bool may_fail = false;

  static constexpr std::string_view type_name = "Simulation";
  static constexpr std::string_view doc =
      "One experiment: a workload served by a gateway, a router and a fleet of instances.";
  static void fields(auto field) {
    using S = Simulation;
    field("workload", &S::workload, "The workload: which clients send which requests, and when.");
    field("tenants", &S::tenants,
          "Tenants and their weights; tenants that occur only in the workload get the defaults.");
    field("slo_classes", &S::slo_classes,
          "Classes of service; classes that occur only in a trace get the defaults.");
    field("reaction", &S::reaction,
          "How long clients wait and when they retry; by default they wait indefinitely.");
    field("length_prediction", &S::length_prediction,
          "The predicted output lengths, which policies may use; by default they are exact.");
    field("gateway", &S::gateway,
          "The gateway: which requests are admitted, and when they are dispatched.");
    field("router", &S::router, "The router: which instance takes a dispatched request.");
    field("disaggregation", &S::disaggregation,
          "How requests pass through a prefill and a decode pool, if instances have these roles.");
    field("signals", &S::signals,
          "How the metrics of the instances reach decisions, and at what age.");
    field("prefix_index", &S::prefix_index,
          "The gateway's own record of the prompts that it sent.");
    field("busy_monitor", &S::busy_monitor,
          "When a worker is busy, as seen by the gateway; without thresholds, never due to its "
          "load.");
    field("instances", &S::instances, "The fleet: one or more groups of identical instances.");
    field("fleet", &S::fleet,
          "Which of these instances are in service, and when; by default all of them, always.");
    field("metrics", &S::metrics, "What is measured, and how.");
    field("horizon_s", &S::horizon_s,
          "End of the simulated time; unset: the run ends when all requests have ended.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("warm_up_s", &S::warm_up_s,
          "Requests that arrive earlier are simulated but excluded from the summary.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("quantum_ns", &S::quantum_ns,
          "Resolution of durations, which are truncated to multiples of it.")
        .unit("ns")
        .range(sim::between(1, 1e9));
    field("changes", &S::changes,
          "Settings that change during the run, and requests from outside the workload, at stated "
          "times.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

}  // namespace spillway::cluster
