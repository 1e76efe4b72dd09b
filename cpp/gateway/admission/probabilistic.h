#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "signals/saturation.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;

/// Rejects more sheddable requests the more saturated the fleet is.
struct Probabilistic : signals::SaturationDetector {
  double k = 300;
  double power = 5;

  static constexpr std::string_view kind = "probabilistic", type_name = "Probabilistic";
  static constexpr std::string_view doc =
      "Rejects sheddable requests (negative priority) with probability min(1, k·s^power) at a "
      "saturation s of the fleet (llm-d's probabilistic-admitter). utilization: mean over the "
      "instances of the larger of waiting ÷ queue_depth_threshold and KV use ÷ "
      "kv_utilization_threshold, 1 for an instance whose signals are stale; concurrency: requests "
      "routed and not finished ÷ (max_concurrency × instances).";
  static void fields(auto field) {
    SaturationDetector::fields(field);
    field("k", &Probabilistic::k, "Factor of the probability.")
        .dimensionless()
        .range(sim::between(0, 1e12))
        .log_search(1, 1000)
        .runtime();
    field("power", &Probabilistic::power,
          "Exponent of the saturation; larger values make the onset later and steeper.")
        .dimensionless()
        .range(sim::between(0, 100))
        .search(1, 8)
        .runtime();
  }
  bool draws() const { return k > 0; }
  signals::Needs needs() const { return token_needs(); }
  static constexpr std::array reasons{workload::Reason{
      "probabilistic", workload::categories::kSaturated,
      "random rejection of a sheddable request, more likely the higher the saturation"}};
};

std::unique_ptr<AdmissionPolicy> make(const Probabilistic& config);

}  // namespace spillway::gateway
