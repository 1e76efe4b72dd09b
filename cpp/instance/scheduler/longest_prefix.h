#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::workload {
class RequestTable;
}

namespace spillway::instance {

class SchedulerPolicy;

/// The request with the most cached tokens first.
struct LongestPrefix {
  std::int64_t aging_tokens_per_step = 0;
  std::int64_t max_sorted_requests = 128;

  static constexpr std::string_view kind = "longest_prefix", type_name = "LongestPrefix";
  static constexpr std::string_view doc =
      "The request with the most cached tokens first, then the earliest (lpm in SGLang). The order "
      "is taken anew at every step that considers waiting requests, so new requests with a cached "
      "prefix pass those without one.";
  static void fields(auto field) {
    using L = LongestPrefix;
    field("aging_tokens_per_step", &L::aging_tokens_per_step,
          "Tokens that a request gains for each step that considered it since it joined the queue, "
          "which prevents starvation (proposed for SGLang as lpm-aging-tokens-per-pass). 0: none.")
        .unit("tokens/step")
        .range(sim::between(0, 1e6))
        .log_search(1, 10000);
    field("max_sorted_requests", &L::max_sorted_requests,
          "With more waiting requests, the earliest is first.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(16, 1024);
  }
};

std::unique_ptr<SchedulerPolicy> make(const LongestPrefix& config,
                                      const workload::RequestTable& requests);

}  // namespace spillway::instance
