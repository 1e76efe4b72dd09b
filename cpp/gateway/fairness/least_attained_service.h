#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "gateway/fairness/cost.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

class FairnessPolicy;

/// When attained service decays.
enum class ServiceDecay : std::uint8_t { idle, always };
/// Over which bands the service of a tenant is counted.
enum class ServiceScope : std::uint8_t { band, gateway };

/// Serves the tenant with the least recent service or the longest wait. Source:
/// `program-aware-fairness` of the llm-d router: at commit 6626b83, with the settings of its
/// documentation, decay is `idle` (there the service of a tenant with requests in flight does not
/// decay; here the charge at their end has the same effect, unless the tenant queues another
/// request before); at ebab687, decay is `always` and the scope `gateway`.
struct LeastAttainedService {
  double service_weight = 0.8;
  double head_wait_weight = 0.2;
  double half_life_s = 60;
  ServiceDecay decay = ServiceDecay::idle;
  ServiceScope scope = ServiceScope::band;
  Cost cost{.unit = CostUnit::weighted_tokens, .charge_at = ChargeAt::completion};

  static constexpr std::string_view kind = "least_attained_service",
                                    type_name = "LeastAttainedService";
  static constexpr std::string_view doc =
      "Least attained service (llm-d's program-aware-fairness): the highest score goes next, "
      "service_weight × (1 − service attained) + head_wait_weight × wait of the oldest request, "
      "each scaled to [0, 1] over the waiting tenants (0.5 if all are equal). The weights of "
      "tenants have no effect.";
  static void fields(auto field) {
    field("service_weight", &LeastAttainedService::service_weight,
          "Weight of low attained service.")
        .dimensionless()
        .range(sim::between(0, 1e9))
        .search(0, 1)
        .runtime();
    field("head_wait_weight", &LeastAttainedService::head_wait_weight, "Weight of a long wait.")
        .dimensionless()
        .range(sim::between(0, 1e9))
        .search(0, 1)
        .runtime();
    field("half_life_s", &LeastAttainedService::half_life_s, "Half-life of the attained service.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(1, 1000);
    field("decay", &LeastAttainedService::decay,
          "When attained service decays. idle: from the last charge on, and only while the "
          "tenant's queue is empty; always: all the time (llm-d since 0.9).");
    field("scope", &LeastAttainedService::scope,
          "Where service counts. band: in the band that gave it; gateway: in all bands with this "
          "scope, whose decay is that of the highest one (llm-d since 0.9).");
    field("cost", &LeastAttainedService::cost, "Measure of service, and when it is charged.");
  }
};

std::unique_ptr<FairnessPolicy> make(const LeastAttainedService& config,
                                     std::span<const double> weights);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::ServiceDecay> {
  static constexpr std::array<std::string_view, 2> names{"idle", "always"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::ServiceScope> {
  static constexpr std::array<std::string_view, 2> names{"band", "gateway"};
};
