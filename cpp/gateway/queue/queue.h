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

/// Which request of a flow goes next.
enum class Ordering : std::uint8_t { fcfs, lifo, adaptive_lifo, edf, slo_deadline };
/// Who gives way where a flow is full.
enum class Drop : std::uint8_t { tail, head, lowest_priority };

/// The tenant queues of a band.
struct Queue {
  std::optional<std::int64_t> max_requests;
  std::optional<double> timeout_s;
  Ordering ordering = Ordering::fcfs;
  Drop drop = Drop::tail;
  std::optional<double> codel_target_s;
  double codel_interval_s = 0.1;

  static constexpr std::string_view type_name = "Queue";
  static constexpr std::string_view doc =
      "The tenant queues of a band: one per tenant, through which every admitted request passes, "
      "also when permits are free.";
  static void fields(auto field) {
    const auto span = sim::positive_up_to(sim::kLongestSpan_s);
    field("max_requests", &Queue::max_requests,
          "Most requests of one tenant that wait, unless the tenant has a queue_max of its own; "
          "0: every request is refused, since each passes through the queue; absent: any number.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 64);
    field("timeout_s", &Queue::timeout_s,
          "A request that has waited so long leaves undispatched; one that gets its permit at "
          "that instant goes. Absent: it waits for ever.")
        .unit("s")
        .range(span)
        .log_search(0.05, 60);
    field("ordering", &Queue::ordering,
          "Which request of a tenant goes next. fcfs; lifo; adaptive_lifo: fcfs, but the first "
          "dispatch after a timeout takes the newest (Dynamo); edf: earliest timeout, which is "
          "fcfs while timeouts are equal; slo_deadline: earliest arrival + target_ttft_s of its "
          "class, those without last (llm-d).");
    field("drop", &Queue::drop,
          "Who gives way where a tenant's queue is full. tail: the newcomer is refused; head: "
          "whoever would have gone next; lowest_priority: the least important, the newest of "
          "equals, which may be the newcomer.");
    field("codel_target_s", &Queue::codel_target_s,
          "Controlled delay (folly's Codel): if even the shortest wait of an interval exceeded "
          "this, those whose turn comes after more than twice as long are lost in the next one. "
          "Absent: none.")
        .unit("s")
        .range(span)
        .log_search(0.01, 10);
    field("codel_interval_s", &Queue::codel_interval_s, "Interval of controlled delay.")
        .unit("s")
        .range(span)
        .log_search(0.05, 30);
  }
  /// How a queue refuses or loses a request.
  static constexpr std::array reasons{
      workload::Reason{"queue_full",
                       workload::categories::kQueueFull,
                       "the tenant's queue, its band or the whole gateway was full: of the "
                       "newcomer or, by `drop` and `queue_shedding`, of another",
                       {"gateway.bands[].queue.max_requests", "gateway.bands[].max_requests",
                        "gateway.max_queued", "tenants[].queue_max"}},
      workload::Reason{"queue_timeout",
                       workload::categories::kTtlExpired,
                       "no permit came within the queue's timeout_s",
                       {"gateway.bands[].queue.timeout_s"}},
      workload::Reason{"queue_delay",
                       workload::categories::kTtlExpired,
                       "its turn came while the queue was overloaded, after more than twice "
                       "codel_target_s",
                       {"gateway.bands[].queue.codel_target_s"}},
      workload::Reason{"in_flight_eviction",
                       workload::categories::kEvictedPriority,
                       "it was taken out of its instance, as saturation kept more important "
                       "requests waiting",
                       {"gateway.eviction.max_victims"}}};
  enum Reasons : std::uint8_t { kFull, kTimeout, kDelay, kInFlight };
};

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Ordering> {
  static constexpr std::array<std::string_view, 5> names{"fcfs", "lifo", "adaptive_lifo", "edf",
                                                         "slo_deadline"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::Drop> {
  static constexpr std::array<std::string_view, 3> names{"tail", "head", "lowest_priority"};
};
