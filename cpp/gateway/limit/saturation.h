#pragma once

#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "signals/saturation.h"

namespace spillway::gateway {

class LimitPolicy;

/// Requests may start while the saturation of the fleet is below their band's ceiling.
struct Saturation : signals::SaturationDetector {
  static constexpr std::string_view kind = "saturation", type_name = "Saturation";
  static constexpr std::string_view doc =
      "Requests of a band may start while the saturation of the fleet is below the band's ceiling "
      "(flow control of llm-d's endpoint picker). utilization: mean over the instances of the "
      "larger of waiting ÷ queue_depth_threshold and KV use ÷ kv_utilization_threshold, 1 for an "
      "instance whose signals are stale, or by staleness_policy; concurrency: requests dispatched "
      "and not finished ÷ (max_concurrency × instances), or by concurrency_mode.";
  signals::Needs needs() const { return signals::Needs{.fleet_signals = true} | token_needs(); }
};

std::unique_ptr<LimitPolicy> make(const Saturation& config);

}  // namespace spillway::gateway
