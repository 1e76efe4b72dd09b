#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::workload {

class ArrivalProcess;

/// Distribution of the time for which a user thinks.
enum class ThinkTime : std::uint8_t { exponential, constant };

/// Users that wait for an answer, think, and send the next request: the load follows the service.
struct ClosedLoop {
  std::int64_t users = 16;
  double think_time_s = 0;
  ThinkTime think_time = ThinkTime::exponential;
  double refusal_turnaround_s = 0.01;
  std::int64_t turns = 1;

  static constexpr std::string_view kind = "closed_loop", type_name = "ClosedLoop";
  static constexpr std::string_view doc =
      "Users that wait for an answer, think, and send the next request: the load follows the "
      "service. The client needs an end: its own duration_s or num_requests, the workload's "
      "duration_s, or a horizon_s. Its rate and the workload's num_requests have no effect.";
  static void fields(auto field) {
    field("users", &ClosedLoop::users,
          "Number of users, each with at most one request in the system.")
        .unit("users")
        .range(sim::between(1, 1e6))
        .log_search(1, 1024);
    field("think_time_s", &ClosedLoop::think_time_s,
          "Mean time from the end of a request, served or not, to the user's next one, and from "
          "the start to the first request.")
        .unit("s")
        .range(sim::between(0, 1e6));
    field("think_time", &ClosedLoop::think_time, "Distribution of the think time.");
    field("refusal_turnaround_s", &ClosedLoop::refusal_turnaround_s,
          "Minimum time from the end of a request that was not served (rejected, expired, evicted "
          "or withdrawn) to the user's next one, however short the think time: the round trip of "
          "an error. At least one quantum.")
        .unit("s")
        .range(sim::between(1e-5, 1e6))
        .log_search(1e-3, 10);
    field("turns", &ClosedLoop::turns,
          "Number of requests in a conversation. Each prompt begins with all earlier questions and "
          "answers of the conversation; 1: requests are independent. Cached KV blocks of earlier "
          "prompts can be reused, those of generated answers with kv_cache.generated_tokens.")
        .unit("requests")
        .range(sim::between(1, 100000));
  }
  bool draws() const { return think_time == ThinkTime::exponential && think_time_s > 0; }
};

/// No open-loop arrivals: every gap is infinite.
std::unique_ptr<ArrivalProcess> make(const ClosedLoop& config, double rate_per_s);

}  // namespace spillway::workload

template <>
struct spillway::sim::EnumNames<spillway::workload::ThinkTime> {
  static constexpr std::array<std::string_view, 2> names{"exponential", "constant"};
};
