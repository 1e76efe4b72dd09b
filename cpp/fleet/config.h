#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "fleet/faults.h"
#include "fleet/migration.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::fleet {

/// The number of instances follows its target alone.
struct NoAutoscaler {
  static constexpr std::string_view kind = "none", type_name = "NoAutoscaler";
  static constexpr std::string_view doc = "The number of instances follows its target alone.";
  static void fields(auto /*field*/) {}
};

/// The fields of the bounds of an autoscaler.
template <class Scaler>
void range_of_scaler(auto field) {
  field("min_instances", &Scaler::min_instances,
        "Minimum number of instances; 0: an idle fleet scales to zero.")
      .unit("instances")
      .range(sim::between(0, 100000));
  field("max_instances", &Scaler::max_instances,
        "Maximum number of instances; the simulation must have this many.")
      .unit("instances")
      .range(sim::between(1, 100000));
}

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
    range_of_scaler<QueueScaler>(field);
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

/// The metric of a target scaler, per instance.
enum class ScalerMetric : std::uint8_t {
  in_flight,
  queued,
  waiting,
  running,
  seats,
  kv_utilization,
  sensor,
  limit_decreases
};

}  // namespace spillway::fleet

template <>
struct spillway::sim::EnumNames<spillway::fleet::ScalerMetric> {
  static constexpr std::array<std::string_view, 8> names{
      "in_flight", "queued",         "waiting", "running",
      "seats",     "kv_utilization", "sensor",  "limit_decreases"};
};

namespace spillway::fleet {

/// Scales to a target of a metric per instance.
struct TargetScaler {
  ScalerMetric metric = ScalerMetric::in_flight;
  double target = 32;
  double tolerance = 0.1;
  double poll_s = 15;
  std::int64_t min_instances = 1;
  std::int64_t max_instances = 4;
  double up_stabilization_s = 0;
  std::int64_t up_instances = 4;
  double up_share = 1;
  double down_stabilization_s = 300;
  double down_share = 1;

  static constexpr std::string_view kind = "target", type_name = "TargetScaler";
  static constexpr std::string_view doc =
      "The rule of Kubernetes' horizontal pod autoscaler: the recommendation is the total of the "
      "metric over the instances ÷ target, rounded up, or the present number within the tolerance. "
      "The fleet scales up to the smallest recommendation in up_stabilization_s and down to the "
      "largest in down_stabilization_s, at each poll by no more than the limits. Instances that "
      "start count with 0. A fleet without instances starts one as soon as a request waits.";
  static void fields(auto field) {
    using Self = TargetScaler;
    const auto window = sim::between(0, sim::kLongestSpan_s);
    field(
        "metric", &Self::metric,
        "in_flight: requests that the gateway has dispatched; queued: those in its queues; "
        "waiting, running: those in the engines' queues and batches; seats: running ÷ "
        "max_num_seqs; kv_utilization: share of KV memory in use; these four are as the instances "
        "report them (signals). Of a gateway whose controller moves a limit: sensor: the last "
        "value of gateway.sensor in its unit, such as a TTFT in s; limit_decreases: share of the "
        "controller's ticks since the last poll that lowered the limit. The last two are of the "
        "fleet as a whole: the number of instances grows by their ratio to the target, and stays "
        "where there are too few samples.");
    field("target", &Self::target, "Target of the metric per instance.")
        .dimensionless()
        .range(sim::positive_up_to(1e9))
        .log_search(0.1, 256);
    field("tolerance", &Self::tolerance,
          "Relative difference from the target up to which the number of instances stays.")
        .dimensionless()
        .range(sim::between(0, 10));
    field("poll_s", &Self::poll_s, "Polling interval of the metric.")
        .unit("s")
        .range(sim::between(0.1, sim::kLongestSpan_s));
    range_of_scaler<Self>(field);
    field("up_stabilization_s", &Self::up_stabilization_s,
          "Time for which more instances must be recommended.")
        .unit("s")
        .range(window);
    field("up_instances", &Self::up_instances,
          "Maximum number of instances that a poll adds, unless up_share allows more.")
        .unit("instances")
        .range(sim::between(1, 100000));
    field("up_share", &Self::up_share,
          "Maximum share of the present number that a poll adds, unless up_instances allows more.")
        .dimensionless()
        .range(sim::between(0, 1000));
    field("down_stabilization_s", &Self::down_stabilization_s,
          "Time for which fewer instances must be recommended.")
        .unit("s")
        .range(window);
    field("down_share", &Self::down_share,
          "Maximum share of the present number that a poll removes, at least one instance.")
        .dimensionless()
        .range(sim::between(0, 1));
  }
};

/// Scales by KV memory: what is in use and what waiting requests will need.
struct WvaScaler {
  double poll_s = 30;
  double kv_utilization_threshold = 0.8;
  double queued_tokens = 512;
  double up_threshold = 0.8;
  double down_threshold = 0.4;
  std::int64_t min_instances = 1;
  std::int64_t max_instances = 4;

  static constexpr std::string_view kind = "wva", type_name = "WvaScaler";
  static constexpr std::string_view doc =
      "The saturation rule of llm-d's workload variant autoscaler, approximately (after BLIS "
      "v0.7). An instance supplies kv_utilization_threshold × its KV tokens. Demand is the KV "
      "tokens in use + queued_tokens for each request that waits in an engine or a gateway. If "
      "demand ÷ up_threshold exceeds the supply of the instances in service, those that start "
      "included, as many are added as cover it; if the supply exceeds demand ÷ down_threshold by "
      "whole instances, these are removed. A fleet without instances starts one as soon as a "
      "request waits.";
  static void fields(auto field) {
    using Self = WvaScaler;
    field("poll_s", &Self::poll_s, "Polling interval of the metrics.")
        .unit("s")
        .range(sim::between(0.1, sim::kLongestSpan_s));
    field("kv_utilization_threshold", &Self::kv_utilization_threshold,
          "Share of KV memory that counts as supply.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.5, 1);
    field("queued_tokens", &Self::queued_tokens,
          "KV tokens that a waiting request is assumed to need.")
        .unit("tokens")
        .range(sim::between(0, 1e9))
        .log_search(64, 16384);
    field("up_threshold", &Self::up_threshold,
          "Share of the supply that demand may reach before instances are added.")
        .dimensionless()
        .range(sim::positive_up_to(10))
        .search(0.5, 1);
    field("down_threshold", &Self::down_threshold,
          "Share of the supply that demand must stay below after instances are removed.")
        .dimensionless()
        .range(sim::positive_up_to(10))
        .search(0.1, 0.6);
    range_of_scaler<Self>(field);
  }
};

/// What a planner reads of an instance.
enum class PlannerTarget : std::uint8_t { load, sla };

}  // namespace spillway::fleet

template <>
struct spillway::sim::EnumNames<spillway::fleet::PlannerTarget> {
  static constexpr std::array<std::string_view, 2> names{"load", "sla"};
};

namespace spillway::fleet {

/// Scales by one instance when all instances are busy, or none is.
struct PlannerScaler {
  PlannerTarget optimization_target = PlannerTarget::load;
  double poll_s = 5;
  double prefill_tokens_threshold = 8192;
  double kv_utilization_threshold = 0.8;
  double ttft_s = 0.5;
  double itl_s = 0.05;
  double sensitivity = 0.8;
  std::int64_t min_instances = 1;
  std::int64_t max_instances = 4;

  static constexpr std::string_view kind = "planner", type_name = "PlannerScaler";
  static constexpr std::string_view doc =
      "The planner of NVIDIA Dynamo (docs/design-docs/planner-design.md), approximately, with "
      "load-based scaling. One instance is added when every ready instance is above a threshold, "
      "and one is removed when every one is below all of them, times the sensitivity; nothing "
      "changes while an instance starts. A fleet without instances starts one as soon as a request "
      "waits. The thresholds are of loads or of latencies (optimization_target). Replicas by a "
      "forecast of the traffic (enable_throughput_scaling) are not modeled.";
  static void fields(auto field) {
    using Self = PlannerScaler;
    field("optimization_target", &Self::optimization_target,
          "load: thresholds of prompt tokens and KV memory, and an instance is busy above either; "
          "sla: targets of the TTFT and the ITL that one more request would have, either of which "
          "must be missed by all instances. They are estimated from the step times of the server, "
          "without noise: TTFT from all prompt tokens not yet computed and a mean prompt, in "
          "chunks of max_num_batched_tokens behind the batch's decodes, each chunk without those "
          "before it; ITL from a step of all "
          "requests inside and one more, with the mean share of prompts in a step since the last "
          "poll.");
    field("poll_s", &Self::poll_s, "Polling interval of the metrics.")
        .unit("s")
        .range(sim::between(0.1, sim::kLongestSpan_s));
    field("prefill_tokens_threshold", &Self::prefill_tokens_threshold,
          "Prompt tokens that an instance has yet to compute, above which it is busy.")
        .unit("tokens")
        .range(sim::between(0, 1e12))
        .log_search(512, 65536);
    field("kv_utilization_threshold", &Self::kv_utilization_threshold,
          "Share of KV memory in use above which an instance is busy.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.5, 1);
    field("ttft_s", &Self::ttft_s, "Target of the estimated TTFT, with sla.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.05, 5);
    field("itl_s", &Self::itl_s, "Target of the estimated time between tokens, with sla.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.005, 0.5);
    field("sensitivity", &Self::sensitivity,
          "Share of the thresholds below which an instance has room.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.3, 1);
    range_of_scaler<Self>(field);
  }
};

using Autoscaler = std::variant<NoAutoscaler, QueueScaler, TargetScaler, WvaScaler, PlannerScaler>;

/// Whether the autoscaler reads estimated latencies.
inline bool reads_latencies(const Autoscaler& autoscaler) {
  const auto* planner = std::get_if<PlannerScaler>(&autoscaler);
  return planner && planner->optimization_target == PlannerTarget::sla;
}

/// How many instances of a prefill or decode pool are in service.
struct PoolSize {
  std::optional<std::int64_t> initial_instances;
  std::optional<std::int64_t> target_instances;
  Autoscaler autoscaler = NoAutoscaler{};

  static constexpr std::string_view type_name = "PoolSize";
  static constexpr std::string_view doc =
      "How many instances of a prefill or decode pool are in service. Those of the pool join in "
      "listed order and leave in reverse order; an instance that leaves gets no more requests and "
      "finishes those that it has, and its prompts are read. Needs instances with the roles "
      "prefill and decode alone. The autoscaler reads what the instances of the pool report; "
      "queued, shed and in-flight requests and the sensor are those of the gateway. Of "
      "PlannerScaler's thresholds a prefill pool has that of prompt tokens or TTFT and a decode "
      "pool that of KV memory or ITL, as in NVIDIA Dynamo.";
  static void fields(auto field) {
    field("initial_instances", &PoolSize::initial_instances,
          "Number of instances of the pool that are ready at the start; unset: all.")
        .unit("instances")
        .range(sim::between(0, 100000));
    field("target_instances", &PoolSize::target_instances,
          "Number of instances of the pool to be in service, which an autoscaler changes from "
          "there on; unset: as many as there are.")
        .unit("instances")
        .range(sim::between(0, 100000))
        .search(1, 16)
        .runtime();
    field("autoscaler", &PoolSize::autoscaler,
          "Autoscaler that also changes the number of instances of the pool.");
  }
  bool is_constant() const {
    return !initial_instances && !target_instances &&
           std::holds_alternative<NoAutoscaler>(autoscaler);
  }
};

/// Which of the simulation's instances are in service, and when.
struct Fleet {
  std::optional<std::int64_t> initial_instances;
  std::optional<std::int64_t> target_instances;
  Autoscaler autoscaler = NoAutoscaler{};
  double startup_s = 40;
  std::optional<double> reported_ready_after_s;
  PoolSize prefill;
  PoolSize decode;
  std::optional<std::int64_t> max_pool_instances;
  Health health;
  Migration migration;
  std::optional<Breakdowns> breakdowns;

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
          "as many as there are. An instance that leaves finishes its requests: a failure is "
          "stated in changes[].faults.")
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
    field("prefill", &Fleet::prefill, "Size of the prefill pool, where instances have roles.");
    field("decode", &Fleet::decode, "Size of the decode pool, where instances have roles.");
    field("max_pool_instances", &Fleet::max_pool_instances,
          "Number of instances that autoscalers may keep in service in both pools together, as a "
          "budget of GPUs limits them. If both pools want to grow at one poll, the prefill pool "
          "is first. Unset: no limit.")
        .unit("instances")
        .range(sim::between(1, 100000));
    field("health", &Fleet::health, "How the gateway notices that an instance has failed.");
    field("migration", &Fleet::migration,
          "Whether requests of an instance that fails go on at another one.");
    field("breakdowns", &Fleet::breakdowns,
          "Instances fail at random; unset: only as changes[].faults state.");
  }
  /// Whether the number of instances stays as it is, unless a target changes.
  bool is_constant() const {
    return !initial_instances && !target_instances &&
           std::holds_alternative<NoAutoscaler>(autoscaler) && !has_own_pools();
  }
  /// Whether the pools have sizes of their own.
  bool has_own_pools() const { return !prefill.is_constant() || !decode.is_constant(); }
};

}  // namespace spillway::fleet
