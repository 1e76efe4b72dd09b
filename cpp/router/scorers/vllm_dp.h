#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// The rule of vLLM's data-parallel coordinator.
struct VllmDp {
  double weight = 1;

  static constexpr std::string_view kind = "vllm_dp", type_name = "VllmDp";
  static constexpr std::string_view doc =
      "Four times the waiting plus the running requests, the fewer the better: 1 for the fewest, 0 "
      "for the most; 1 for all if they are equal (vLLM's data-parallel load balancing).";
  static void fields(auto field) { add_weight<VllmDp>(field); }
};

std::unique_ptr<Scorer> make(const VllmDp& config);

}  // namespace spillway::router
