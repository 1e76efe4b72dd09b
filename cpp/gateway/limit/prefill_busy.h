#pragma once

#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class LimitPolicy;

/// Requests wait while every instance has enough prompts to compute.
struct PrefillBusy {
  double threshold = 2;

  static constexpr std::string_view kind = "prefill_busy", type_name = "PrefillBusy";
  static constexpr std::string_view doc =
      "Requests may start while any instance has at most threshold × max_num_batched_tokens "
      "uncached prompt tokens of requests that await their first token, by the gateway's own count "
      "(the router queue of NVIDIA Dynamo, --router-queue-threshold). One is routed before the "
      "next "
      "starts.";
  static void fields(auto field) {
    field("threshold", &PrefillBusy::threshold,
          "Multiple of max_num_batched_tokens above which an instance is busy.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .log_search(0.25, 16)
        .runtime();
  }
  static constexpr signals::Needs needs{
      .prefix_index = true, .outstanding = true, .first_tokens = true, .fleet_signals = true};
};

std::unique_ptr<LimitPolicy> make(const PrefillBusy& config);

}  // namespace spillway::gateway
