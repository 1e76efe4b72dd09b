#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "instance/ingress/rules.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::instance {

/// Dynamo's N + Q: N requests in the engine, Q in an overflow queue; others are refused.
struct EngineRequestLimit {
  std::int64_t max_requests = 256;
  std::int64_t queue_size = 16;

  static constexpr std::string_view kind = "engine_request_limit", type_name = "EngineRequestLimit";
  static constexpr std::string_view doc =
      "At most max_requests in the engine and queue_size more in an overflow queue, first come, "
      "first served; all others are refused (Dynamo 1.2 to 1.5 --engine-request-limit).";
  static void fields(auto field) {
    field("max_requests", &EngineRequestLimit::max_requests,
          "Maximum number of requests in the engine, waiting or running.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(8, 1024);
    field("queue_size", &EngineRequestLimit::queue_size,
          "Maximum number of requests in the overflow queue. With 1 there can be 2: one more is in "
          "transit from the queue to the engine, which larger queues include.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(2, 1024);
  }
  static constexpr std::array reasons{
      workload::Reason{"worker_at_capacity", workload::categories::kQueueFull,
                       "engine and overflow queue of the worker are full"}};

  IngressRules rules(std::int64_t /*max_num_seqs*/) const {
    // A channel of Q − 1, but at least 1, plus the one held by the dispatcher.
    return {.most_unfinished = max_requests,
            .queue_size = (queue_size > 2 ? queue_size - 1 : 1) + 1};
  }
};

}  // namespace spillway::instance
