#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "instance/ingress/rules.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::instance {

/// vLLM's bounds on its own queue.
struct VllmQueueLimits {
  std::optional<std::int64_t> max_num_queued_reqs;
  std::optional<std::int64_t> max_num_queued_tokens;
  bool counts_running = false;

  static constexpr std::string_view kind = "vllm_queue_limits", type_name = "VllmQueueLimits";
  static constexpr std::string_view doc =
      "Refuses requests while the engine's queue is at a limit. The limits apply to the queue "
      "before the request joins, so the request that crosses a limit is accepted. vLLM has them "
      "from 0.29 on and answers 503.";
  static void fields(auto field) {
    field("max_num_queued_reqs", &VllmQueueLimits::max_num_queued_reqs,
          "Number of waiting requests from which all requests are refused (vLLM "
          "--max-num-queued-reqs); 0: all are refused; unset: unlimited.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 1024);
    field("max_num_queued_tokens", &VllmQueueLimits::max_num_queued_tokens,
          "Number of prompt tokens still to be computed from which all requests are refused (vLLM "
          "--max-num-queued-tokens); 0: all are refused; unset: unlimited.")
        .unit("tokens")
        .range(sim::between(0, 1e12))
        .log_search(1000, 1e6);
    field("counts_running", &VllmQueueLimits::counts_running,
          "Whether max_num_queued_reqs also counts the requests of the batch, as in vLLM.");
  }
  static constexpr std::array reasons{
      workload::Reason{"queued_requests", workload::categories::kQueueFull,
                       "too many requests wait in the engine"},
      workload::Reason{"queued_tokens", workload::categories::kQueueFull,
                       "too many prompt tokens wait in the engine"}};

  IngressRules rules(std::int64_t /*max_num_seqs*/) const {
    return {.most_engine_requests = max_num_queued_reqs.value_or(IngressRules::kAny),
            .counts_running = counts_running,
            .most_engine_tokens = max_num_queued_tokens.value_or(IngressRules::kAny),
            .when_tokens = 1};
  }
};

}  // namespace spillway::instance
