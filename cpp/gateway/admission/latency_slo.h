#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// Sheddable requests that no instance would serve in time are refused.
struct LatencySlo {
  double headroom_factor = 1;
  double cold_kv_utilization = 0.02;
  double half_life_samples = 100;

  static constexpr std::string_view kind = "latency_slo", type_name = "LatencySlo";
  static constexpr std::string_view doc =
      "Refuses a sheddable request (negative priority) if no instance is predicted to keep the "
      "targets of its class for the first token and per token, none is idle and none is cold "
      "(llm-d's latency-slo-admitter). Nothing is refused before there are predictions. They come "
      "from what the gateway has measured: a line over the prompt tokens to compute for the first "
      "token, one over the streams of an instance for the others, whose strictest target counts.";
  static void fields(auto field) {
    field("headroom_factor", &LatencySlo::headroom_factor,
          "Predictions may take so much of a target.")
        .dimensionless()
        .range(sim::positive_up_to(1000))
        .search(0.5, 2);
    field("cold_kv_utilization", &LatencySlo::cold_kv_utilization,
          "An instance that uses less of its KV memory is cold.")
        .dimensionless()
        .range(sim::between(0, 1));
    field("half_life_samples", &LatencySlo::half_life_samples,
          "A measurement that is older by so many counts half.")
        .unit("samples")
        .range(sim::between(1, 1e9))
        .log_search(10, 1000);
  }
  static constexpr bool observes = true;
  static constexpr std::array reasons{
      workload::Reason{"latency_slo", workload::categories::kSaturated,
                       "no instance is predicted to keep the targets of this sheddable class"}};
};

std::unique_ptr<AdmissionPolicy> make(const LatencySlo& config, const Scope& scope);

}  // namespace spillway::gateway
