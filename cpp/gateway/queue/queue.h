#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::gateway {

/// Order of the requests of a flow.
enum class Ordering : std::uint8_t {
  fcfs,
  lifo,
  adaptive_lifo,
  edf,
  slo_deadline,
  shortest_output
};
/// Which request yields when a flow is full.
enum class Drop : std::uint8_t { tail, head, lowest_priority };

/// The tenant queues of a band.
struct Queue {
  std::optional<std::int64_t> max_requests;
  std::optional<double> timeout_s;
  std::optional<double> timeout_without_servers_s;
  Ordering ordering = Ordering::fcfs;
  Drop drop = Drop::tail;
  std::optional<double> codel_target_s;
  double codel_interval_s = 0.1;

  static constexpr std::string_view type_name = "Queue";
  static constexpr std::string_view doc =
      "The tenant queues of a band, one per tenant. Every admitted request passes through its "
      "tenant's queue, even when permits are free.";
  static void fields(auto field) {
    const auto span = sim::positive_up_to(sim::kLongestSpan_s);
    field("max_requests", &Queue::max_requests,
          "Maximum number of waiting requests of a tenant without a queue_max of its own; 0: every "
          "request is rejected, because each one passes through the queue; unset: unlimited.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 64)
        .runtime();
    field("timeout_s", &Queue::timeout_s,
          "Wait after which a request expires; one that gets its permit at that instant is "
          "dispatched. Unset: requests wait indefinitely.")
        .unit("s")
        .range(span)
        .log_search(0.05, 60)
        .runtime();
    field("timeout_without_servers_s", &Queue::timeout_without_servers_s,
          "The same while no instance is ready: time to live of requests that wait for a fleet to "
          "start. With it, both times count anew whenever the first instance becomes ready or the "
          "last one goes. Unset: timeout_s applies in any case, from the entry.")
        .unit("s")
        .range(span)
        .log_search(1, 600)
        .runtime();
    field("ordering", &Queue::ordering,
          "Order of a tenant's requests. fcfs; lifo; adaptive_lifo: fcfs, but the first dispatch "
          "after a timeout takes the newest (Dynamo); edf: earliest timeout, those without last, "
          "which is fcfs while timeouts are equal; slo_deadline: earliest arrival + target_ttft_s "
          "of its class, those without last (llm-d); shortest_output: the shortest output by "
          "length_prediction, then the earliest.");
    field("drop", &Queue::drop,
          "Which request yields when a tenant's queue is full. tail: the newcomer; head: the next "
          "request to be dispatched; lowest_priority: the least important one, the newest of "
          "equals, which may be the newcomer.");
    field("codel_target_s", &Queue::codel_target_s,
          "Target of controlled delay (folly's Codel): if the shortest wait of an interval exceeds "
          "it, requests that have waited more than twice as long when their turn comes are dropped "
          "in the next interval. Unset: no controlled delay.")
        .unit("s")
        .range(span)
        .log_search(0.01, 10)
        .runtime();
    field("codel_interval_s", &Queue::codel_interval_s, "Interval of controlled delay.")
        .unit("s")
        .range(span)
        .log_search(0.05, 30);
  }
  /// Reasons for which a queue rejects or drops a request.
  static constexpr std::array reasons{
      workload::Reason{"queue_full",
                       workload::categories::kQueueFull,
                       "the tenant's queue, its band or the whole gateway was full; the newcomer "
                       "or, by `drop` and `queue_shedding`, another request was dropped",
                       {"gateway.bands[].queue.max_requests", "gateway.bands[].max_requests",
                        "gateway.max_queued", "tenants[].queue_max"}},
      workload::Reason{
          "queue_timeout",
          workload::categories::kTtlExpired,
          "no permit came within the queue's timeout_s, or its "
          "timeout_without_servers_s",
          {"gateway.bands[].queue.timeout_s", "gateway.bands[].queue.timeout_without_servers_s",
           "slo_classes[].queue_timeout_s"}},
      workload::Reason{
          "queue_delay",
          workload::categories::kTtlExpired,
          "its turn came during overload of the queue, after more than twice codel_target_s",
          {"gateway.bands[].queue.codel_target_s"}},
      workload::Reason{"in_flight_eviction",
                       workload::categories::kEvictedPriority,
                       "it was evicted from its instance because saturation kept more important "
                       "requests waiting",
                       {"gateway.eviction.max_victims"}}};
  enum Reasons : std::uint8_t { kFull, kTimeout, kDelay, kInFlight };
};

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Ordering> {
  static constexpr std::array<std::string_view, 6> names{"fcfs", "lifo",         "adaptive_lifo",
                                                         "edf",  "slo_deadline", "shortest_output"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::Drop> {
  static constexpr std::array<std::string_view, 3> names{"tail", "head", "lowest_priority"};
};
