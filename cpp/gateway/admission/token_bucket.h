#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;

/// Limits the rate of prompt tokens. The bucket starts full and refills continuously; a request
/// takes its input tokens and is admitted if the bucket holds that many.
struct TokenBucket {
  double capacity_tokens = 10000;
  double refill_tokens_per_s = 1000;

  static constexpr std::string_view kind = "token_bucket", type_name = "TokenBucket";
  static constexpr std::string_view doc =
      "Limits the rate of prompt tokens: the bucket starts full and refills continuously; a "
      "request takes its input tokens and is admitted if the bucket holds that many. A request "
      "larger than the capacity is never admitted.";
  static void fields(auto field) {
    field("capacity_tokens", &TokenBucket::capacity_tokens,
          "Capacity of the bucket: the maximum burst.")
        .unit("tokens")
        .range(sim::at_least(0))
        .log_search(1000, 1e6)
        .runtime();
    field("refill_tokens_per_s", &TokenBucket::refill_tokens_per_s,
          "Continuous refill: the sustained rate.")
        .unit("tokens/s")
        .range(sim::at_least(0))
        .log_search(100, 1e6)
        .runtime();
  }
  static constexpr std::array reasons{
      workload::Reason{"insufficient_tokens", workload::categories::kRateLimited,
                       "the bucket holds fewer tokens than the prompt"}};
};

std::unique_ptr<AdmissionPolicy> make(const TokenBucket& config);

}  // namespace spillway::gateway
