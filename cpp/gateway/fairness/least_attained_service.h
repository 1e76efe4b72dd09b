#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gateway/fairness/cost.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

class FairnessPolicy;

/// Who has been served least of late, or has waited longest. Source:
/// `program-aware-fairness` of the llm-d router (strategy_las.go at commit 6626b83), with the
/// settings of its documentation. There a tenant with requests in flight forgets nothing; here the
/// charge at their end has the same effect, unless it queues another one before.
struct LeastAttainedService {
  double service_weight = 0.8;
  double head_wait_weight = 0.2;
  double half_life_s = 60;
  Cost cost{.unit = CostUnit::weighted_tokens, .charge_at = ChargeAt::completion};

  static constexpr std::string_view kind = "least_attained_service",
                                    type_name = "LeastAttainedService";
  static constexpr std::string_view doc =
      "Least attained service (llm-d's program-aware-fairness): the highest score goes next, "
      "service_weight × (1 − service attained) + head_wait_weight × wait of the oldest request, "
      "each put on the range from 0 to 1 over the tenants that wait (0.5 if all are equal). "
      "Weights of tenants play no part.";
  static void fields(auto field) {
    field("service_weight", &LeastAttainedService::service_weight,
          "Weight of having been served little.")
        .dimensionless()
        .range(sim::between(0, 1e9))
        .search(0, 1);
    field("head_wait_weight", &LeastAttainedService::head_wait_weight,
          "Weight of having waited long.")
        .dimensionless()
        .range(sim::between(0, 1e9))
        .search(0, 1);
    field("half_life_s", &LeastAttainedService::half_life_s,
          "After how long half of the service attained is forgotten. It is forgotten from the "
          "last charge on, and only by a tenant whose queue is empty.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(1, 1000);
    field("cost", &LeastAttainedService::cost, "What counts as service, and when.");
  }
};

std::unique_ptr<FairnessPolicy> make(const LeastAttainedService& config,
                                     std::span<const double> weights);

}  // namespace spillway::gateway
