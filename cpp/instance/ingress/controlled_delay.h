#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "instance/ingress/rules.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::instance {

/// A limit with a queue of bounded wait.
struct ControlledDelay {
  std::optional<std::int64_t> max_requests;
  std::int64_t queue_size = 40000;
  std::optional<double> delay_s = 5;
  bool adaptive_lifo = true;

  static constexpr std::string_view kind = "controlled_delay", type_name = "ControlledDelay";
  static constexpr std::string_view doc =
      "At most max_requests in the engine; other requests wait, first come, first served, and are "
      "refused after a wait of delay_s (a development snapshot of Dynamo after 1.5).";
  static void fields(auto field) {
    field("max_requests", &ControlledDelay::max_requests,
          "Maximum number of requests in the engine; unset: 1.5 × max_num_seqs of all ranks, "
          "rounded up.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(8, 1024);
    field("queue_size", &ControlledDelay::queue_size,
          "Maximum number of waiting requests; 0: no queue.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("delay_s", &ControlledDelay::delay_s,
          "Maximum wait (DYN_DYNAMO_REQUEST_QUEUE_TIMEOUT_MS); unset: unlimited.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.1, 30);
    field("adaptive_lifo", &ControlledDelay::adaptive_lifo,
          "Whether the newest request enters next after a request has waited too long; only once, "
          "then the oldest again.");
  }
  static constexpr std::array reasons{
      workload::Reason{"controlled_delay_full", workload::categories::kQueueFull,
                       "the queue at the worker's ingress is full"},
      workload::Reason{"controlled_delay_expired", workload::categories::kTtlExpired,
                       "the request has waited too long at the worker's ingress"}};

  IngressRules rules(std::int64_t max_num_seqs) const {
    return {.most_unfinished = max_requests.value_or((3 * max_num_seqs + 1) / 2),
            .queue_size = queue_size,
            .longest_wait = delay_s ? sim::from_seconds(*delay_s) : sim::kForever,
            .newest_after_expiry = adaptive_lifo,
            .when_expired = 1};
  }
};

}  // namespace spillway::instance
