#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "signals/saturation.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;

/// Rejects sheddable requests while the fleet is saturated.
struct GaieLegacy : signals::SaturationDetector {
  static constexpr std::string_view kind = "gaie_legacy", type_name = "GaieLegacy";
  static constexpr std::string_view doc =
      "Rejects sheddable requests (negative priority) while the saturation of the fleet is 1 or "
      "more (llm-d's endpoint picker without flow control). utilization: mean over the instances "
      "of the larger of waiting ÷ queue_depth_threshold and KV use ÷ kv_utilization_threshold, 1 "
      "for an instance whose signals are stale; concurrency: requests routed and not finished ÷ "
      "(max_concurrency × instances).";
  static constexpr std::array reasons{
      workload::Reason{"gaie_legacy", workload::categories::kSaturated,
                       "the fleet is saturated and the class is sheddable"}};
  signals::Needs needs() const { return token_needs(); }
};

std::unique_ptr<AdmissionPolicy> make(const GaieLegacy& config);

}  // namespace spillway::gateway
