#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::fleet {

/// The number of instances follows the schedule alone.
struct NoAutoscaler {
  static constexpr std::string_view kind = "none", type_name = "NoAutoscaler";
  static constexpr std::string_view doc = "The number of instances follows the schedule alone.";
  static void fields(auto /*field*/) {}
};

/// Scales by the gateway's queues and refusals.
struct QueueScaler {
  double poll_s = 5;
  double queue_threshold = 1;
  double shed_per_s_threshold = 1;
  double shed_window_s = 60;
  std::int64_t min_instances = 1;
  std::int64_t max_instances = 4;
  double up_stabilization_s = 60;
  double up_period_s = 30;
  double down_stabilization_s = 300;
  double down_period_s = 60;

  static constexpr std::string_view kind = "queue", type_name = "QueueScaler";
  static constexpr std::string_view doc =
      "KEDA on the gateway's metrics, as vllm-on-eks @ 0c78403 runs it: wanted are queued requests "
      "÷ queue_threshold or shed requests per s ÷ shed_per_s_threshold, rounded up, whichever is "
      "more; the smallest wish of up_stabilization_s is followed upwards, the largest of "
      "down_stabilization_s downwards, one instance at a time.";
  static void fields(auto field) {
    const auto span = sim::positive_up_to(sim::kLongestSpan_s);
    const auto window = sim::between(0, sim::kLongestSpan_s);
    field("poll_s", &QueueScaler::poll_s, "Time between two looks at the metrics.")
        .unit("s")
        .range(sim::between(0.1, sim::kLongestSpan_s));
    field("queue_threshold", &QueueScaler::queue_threshold, "Queued requests per instance.")
        .unit("requests")
        .range(sim::positive_up_to(1e9))
        .log_search(0.5, 64);
    field("shed_per_s_threshold", &QueueScaler::shed_per_s_threshold,
          "Requests refused or expired per s and instance.")
        .unit("requests/s")
        .range(sim::positive_up_to(1e9))
        .log_search(0.1, 10);
    field("shed_window_s", &QueueScaler::shed_window_s, "Window of that rate.")
        .unit("s")
        .range(span);
    field("min_instances", &QueueScaler::min_instances,
          "Fewest instances; 0: an idle fleet scales to zero.")
        .unit("instances")
        .range(sim::between(0, 100000));
    field("max_instances", &QueueScaler::max_instances,
          "Most instances; the fleet has to hold them.")
        .unit("instances")
        .range(sim::between(1, 100000));
    field("up_stabilization_s", &QueueScaler::up_stabilization_s,
          "For how long more instances must be wanted.")
        .unit("s")
        .range(window);
    field("up_period_s", &QueueScaler::up_period_s, "Time between two additions.")
        .unit("s")
        .range(window);
    field("down_stabilization_s", &QueueScaler::down_stabilization_s,
          "For how long fewer instances must be wanted.")
        .unit("s")
        .range(window);
    field("down_period_s", &QueueScaler::down_period_s, "Time between two removals.")
        .unit("s")
        .range(window);
  }
};

using Autoscaler = std::variant<NoAutoscaler, QueueScaler>;

/// From then on there should be so many instances.
struct FleetChange {
  double at_s = 0;
  std::int64_t instances = 1;

  static constexpr std::string_view type_name = "FleetChange";
  static constexpr std::string_view doc = "From then on there should be so many instances.";
  static void fields(auto field) {
    field("at_s", &FleetChange::at_s, "When it is decided.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("instances", &FleetChange::instances, "How many there should be.")
        .unit("instances")
        .range(sim::between(0, 100000));
  }
};

/// Which of the simulation's instances are there when.
struct Fleet {
  std::optional<std::int64_t> initial_instances;
  std::vector<FleetChange> schedule;
  Autoscaler autoscaler = NoAutoscaler{};
  double startup_s = 40;
  std::optional<double> reported_ready_after_s;

  static constexpr std::string_view type_name = "Fleet";
  static constexpr std::string_view doc =
      "Which of the simulation's instances are there when. They join in the order in which they "
      "are listed and leave in the reverse order; one that leaves gets no more requests and "
      "finishes those it has. While none is ready, requests wait in the gateway's queues.";
  static void fields(auto field) {
    field("initial_instances", &Fleet::initial_instances,
          "Instances that are ready from the start; absent: all.")
        .unit("instances")
        .range(sim::between(0, 100000));
    field("schedule", &Fleet::schedule, "Changes of their number.");
    field("autoscaler", &Fleet::autoscaler, "What else changes their number.");
    field("startup_s", &Fleet::startup_s,
          "Time from the decision to add an instance until it serves.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("reported_ready_after_s", &Fleet::reported_ready_after_s,
          "Time from the decision until the gateway takes it for ready; requests that it is "
          "sent before it serves wait there. Absent: when it serves.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
  }
  bool is_constant() const {
    return !initial_instances && schedule.empty() &&
           std::holds_alternative<NoAutoscaler>(autoscaler);
  }
};

}  // namespace spillway::fleet
