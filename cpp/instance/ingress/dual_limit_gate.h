#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "instance/ingress/rules.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::instance {

/// Separate limits on streams and on requests in prefill, with a queue in front.
struct DualLimitGate {
  std::int64_t request_limit = 10000;
  std::int64_t wait_limit = 10000;
  std::int64_t queue_size = 40000;

  static constexpr std::string_view kind = "dual_limit_gate", type_name = "DualLimitGate";
  static constexpr std::string_view doc =
      "At most request_limit requests in the engine, of which at most wait_limit without a first "
      "token; other requests wait, first come, first served, without a time limit (a development "
      "snapshot of Dynamo after 1.5).";
  static void fields(auto field) {
    field("request_limit", &DualLimitGate::request_limit,
          "Maximum number of requests in the engine.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(8, 1024);
    field("wait_limit", &DualLimitGate::wait_limit,
          "Maximum number of requests in the engine that await their first token.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(1, 256);
    field("queue_size", &DualLimitGate::queue_size,
          "Maximum number of waiting requests; 0: no queue.")
        .unit("requests")
        .range(sim::between(0, 1e9));
  }
  static constexpr std::array reasons{
      workload::Reason{"dual_limit_full", workload::categories::kQueueFull,
                       "the queue at the worker's ingress is full"}};

  IngressRules rules(std::int64_t /*max_num_seqs*/) const {
    return {.most_unfinished = request_limit,
            .most_awaiting_response = wait_limit,
            .queue_size = queue_size};
  }
};

}  // namespace spillway::instance
