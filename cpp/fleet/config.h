#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::fleet {

/// The number of instances follows its target alone.
struct NoAutoscaler {
  static constexpr std::string_view kind = "none", type_name = "NoAutoscaler";
  static constexpr std::string_view doc = "The number of instances follows its target alone.";
  static void fields(auto /*field*/) {}
};

/// Scales by the gateway's queues and shed requests.
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
      "KEDA on the gateway's metrics, as in vllm-on-eks @ 0c78403. The recommendation is the "
      "larger of queued requests ÷ queue_threshold and shed requests per s ÷ shed_per_s_threshold, "
      "rounded up. The fleet scales up to the smallest recommendation in up_stabilization_s and "
      "down to the largest in down_stabilization_s, one instance at a time.";
  static void fields(auto field) {
    const auto span = sim::positive_up_to(sim::kLongestSpan_s);
    const auto window = sim::between(0, sim::kLongestSpan_s);
    field("poll_s", &QueueScaler::poll_s, "Polling interval of the metrics.")
        .unit("s")
        .range(sim::between(0.1, sim::kLongestSpan_s));
    field("queue_threshold", &QueueScaler::queue_threshold,
          "Target number of queued requests per instance.")
        .unit("requests")
        .range(sim::positive_up_to(1e9))
        .log_search(0.5, 64);
    field("shed_per_s_threshold", &QueueScaler::shed_per_s_threshold,
          "Target rate of shed requests (rejected, expired or evicted) per instance.")
        .unit("requests/s")
        .range(sim::positive_up_to(1e9))
        .log_search(0.1, 10);
    field("shed_window_s", &QueueScaler::shed_window_s, "Window of the rate of shed requests.")
        .unit("s")
        .range(span);
    field("min_instances", &QueueScaler::min_instances,
          "Minimum number of instances; 0: an idle fleet scales to zero.")
        .unit("instances")
        .range(sim::between(0, 100000));
    field("max_instances", &QueueScaler::max_instances,
          "Maximum number of instances; the simulation must have this many.")
        .unit("instances")
        .range(sim::between(1, 100000));
    field("up_stabilization_s", &QueueScaler::up_stabilization_s,
          "Time for which more instances must be recommended.")
        .unit("s")
        .range(window);
    field("up_period_s", &QueueScaler::up_period_s, "Minimum time between two additions.")
        .unit("s")
        .range(window);
    field("down_stabilization_s", &QueueScaler::down_stabilization_s,
          "Time for which fewer instances must be recommended.")
        .unit("s")
        .range(window);
    field("down_period_s", &QueueScaler::down_period_s, "Minimum time between two removals.")
        .unit("s")
        .range(window);
  }
};

using Autoscaler = std::variant<NoAutoscaler, QueueScaler>;

/// Which of the simulation's instances are in service, and when.
struct Fleet {
  std::optional<std::int64_t> initial_instances;
  std::optional<std::int64_t> target_instances;
  Autoscaler autoscaler = NoAutoscaler{};
  double startup_s = 40;
  std::optional<double> reported_ready_after_s;

  static constexpr std::string_view type_name = "Fleet";
  static constexpr std::string_view doc =
      "Which of the simulation's instances are in service, and when. They join in listed order and "
      "leave in reverse order; an instance that leaves gets no more requests and finishes those "
      "that it has. While none is ready, requests wait in the gateway's queues.";
  static void fields(auto field) {
    field("initial_instances", &Fleet::initial_instances,
          "Number of instances that are ready at the start; unset: all.")
        .unit("instances")
        .range(sim::between(0, 100000));
    field("target_instances", &Fleet::target_instances,
          "Number of instances to be in service, which an autoscaler changes from there on; unset: "
          "as many as there are.")
        .unit("instances")
        .range(sim::between(0, 100000))
        .search(1, 16)
        .runtime();
    field("autoscaler", &Fleet::autoscaler,
          "Autoscaler that also changes the number of instances.");
    field("startup_s", &Fleet::startup_s,
          "Time from the decision to add an instance until it serves.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("reported_ready_after_s", &Fleet::reported_ready_after_s,
          "Time from the decision until the instance is reported ready to the gateway; requests "
          "sent to it before it serves wait there. Unset: it is reported ready when it serves.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
  }
  /// Whether the number of instances stays as it is, unless the target changes.
  bool is_constant() const {
    return !initial_instances && !target_instances &&
           std::holds_alternative<NoAutoscaler>(autoscaler);
  }
};

}  // namespace spillway::fleet
