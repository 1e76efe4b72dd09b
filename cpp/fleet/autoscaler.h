#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/schema/field.h"
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

/// Decides at every poll how many instances there should be.
class ScalerState {
 public:
  explicit ScalerState(const QueueScaler& config) : config_(config) {}

  /// `shed`: requests shed since the start.
  std::int64_t poll(std::int64_t queued, std::int64_t shed, std::int64_t instances, sim::Time now);

 private:
  struct Wish {
    sim::Time at;
    std::int64_t instances;
  };
  struct Shed {
    sim::Time at;
    std::int64_t total;
  };

  QueueScaler config_;
  std::vector<Wish> wishes_;  // of the longer stabilisation
  std::vector<Shed> shed_;    // of the window, and the last one before it
  sim::Time last_added_ = sim::kUnset;
  sim::Time last_removed_ = sim::kUnset;
};

}  // namespace spillway::fleet
