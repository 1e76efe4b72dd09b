#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::workload {

class ArrivalProcess;

/// How long a user thinks.
enum class ThinkTime : std::uint8_t { exponential, constant };

/// Users who wait for an answer, think, and ask again: the load follows what is served.
struct ClosedLoop {
  std::int64_t users = 16;
  double think_time_s = 0;
  ThinkTime think_time = ThinkTime::exponential;
  double refusal_turnaround_s = 0.01;
  std::int64_t turns = 1;

  static constexpr std::string_view kind = "closed_loop", type_name = "ClosedLoop";
  static constexpr std::string_view doc =
      "Users who wait for an answer, think, and ask again: the load follows what is served. The "
      "client needs an end: a duration_s or num_requests of its own, a duration_s of the workload "
      "or a horizon_s. Its rate and the workload's num_requests do not count.";
  static void fields(auto field) {
    field("users", &ClosedLoop::users, "Users, each with at most one request in the system.")
        .unit("users")
        .range(sim::between(1, 1e6))
        .log_search(1, 1024);
    field("think_time_s", &ClosedLoop::think_time_s,
          "Mean time from the end of a request, served or not, to the user's next one, and from "
          "the start to the first.")
        .unit("s")
        .range(sim::between(0, 1e6));
    field("think_time", &ClosedLoop::think_time, "Its distribution.");
    field("refusal_turnaround_s", &ClosedLoop::refusal_turnaround_s,
          "Least time from the end of a request that was not served (refused, expired, evicted "
          "or withdrawn) to the user's next one, however short the think time: the round trip "
          "of an error. At least one quantum.")
        .unit("s")
        .range(sim::between(1e-5, 1e6))
        .log_search(1e-3, 10);
    field("turns", &ClosedLoop::turns,
          "Requests of one conversation, whose prompts begin with all earlier questions and "
          "answers of it; 1: each stands for itself. Cached KV blocks of earlier prompts can be "
          "found again, those of generated answers cannot.")
        .unit("requests")
        .range(sim::between(1, 100000));
  }
  bool draws() const { return think_time == ThinkTime::exponential && think_time_s > 0; }
};

/// Nothing arrives by the clock alone: every gap is infinite.
std::unique_ptr<ArrivalProcess> make(const ClosedLoop& config, double rate_per_s);

}  // namespace spillway::workload

template <>
struct spillway::sim::EnumNames<spillway::workload::ThinkTime> {
  static constexpr std::array<std::string_view, 2> names{"exponential", "constant"};
};
