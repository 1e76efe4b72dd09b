#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;

/// Above a load, admits only important classes.
struct TierShed {
  std::int64_t max_load = 0;
  std::int64_t min_priority = 3;

  static constexpr std::string_view kind = "tier_shed", type_name = "TierShed";
  static constexpr std::string_view doc =
      "Admits everything while no instance is loaded above max_load, otherwise only classes of at "
      "least min_priority (BLIS's tier-shed). Load is waiting + running + in flight, so a request "
      "inside an instance counts twice.";
  static void fields(auto field) {
    field("max_load", &TierShed::max_load,
          "Maximum load of any instance up to which everything is admitted.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 512)
        .runtime();
    field("min_priority", &TierShed::min_priority, "Minimum priority that is never rejected.")
        .dimensionless()
        .range(sim::between(-1000, 1000))
        .runtime();
  }
  static constexpr std::array reasons{workload::Reason{
      "tier_shed", workload::categories::kSaturated,
      "an instance is loaded above max_load and the class is not important enough"}};
};

std::unique_ptr<AdmissionPolicy> make(const TierShed& config);

}  // namespace spillway::gateway
