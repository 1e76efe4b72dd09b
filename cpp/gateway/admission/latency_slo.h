#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// Rejects sheddable requests that no instance would serve in time.
struct LatencySlo {
  double headroom_factor = 1;
  double cold_kv_utilization = 0.02;
  double half_life_samples = 100;

  static constexpr std::string_view kind = "latency_slo", type_name = "LatencySlo";
  static constexpr std::string_view doc =
      "Rejects a sheddable request (negative priority) if no instance is predicted to meet the "
      "targets of its class for the first token and per token, and none is idle or cold (llm-d's "
      "latency-slo-admitter). Nothing is rejected before there are predictions. They are linear "
      "fits to the gateway's own measurements: the time to the first token over the prompt tokens "
      "to compute, the time per token over the streams of an instance, to which the strictest "
      "target of these streams applies.";
  static void fields(auto field) {
    field("headroom_factor", &LatencySlo::headroom_factor,
          "Share of a target that a prediction may use.")
        .dimensionless()
        .range(sim::positive_up_to(1000))
        .search(0.5, 2)
        .runtime();
    field("cold_kv_utilization", &LatencySlo::cold_kv_utilization,
          "Share of KV memory in use below which an instance is cold.")
        .dimensionless()
        .range(sim::between(0, 1))
        .runtime();
    field("half_life_samples", &LatencySlo::half_life_samples,
          "Half-life of a measurement, in later measurements.")
        .unit("samples")
        .range(sim::between(1, 1e9))
        .log_search(10, 1000);
  }
  static constexpr bool observes = true;
  static constexpr std::array reasons{
      workload::Reason{"latency_slo", workload::categories::kSaturated,
                       "no instance is predicted to meet the targets of this sheddable class"}};
};

std::unique_ptr<AdmissionPolicy> make(const LatencySlo& config, const Scope& scope);

}  // namespace spillway::gateway
