#pragma once

#include <memory>
#include <string_view>
#include <tuple>

#include "router/scorers/scorer.h"
#include "sim/field.h"

namespace spillway::router {

/// The rule of vLLM's data-parallel coordinator.
struct VllmDp {
  double weight = 1;

  static constexpr std::string_view kind = "vllm_dp", type_name = "VllmDp";
  static constexpr std::string_view doc =
      "Four times the waiting plus the running requests, the fewer the better: 1 for the fewest, 0 "
      "for the most; 1 for all if they are equal (vLLM's data-parallel load balancing).";
  static constexpr auto fields() { return std::tuple(weight_field<VllmDp>()); }
};

std::unique_ptr<Scorer> make(const VllmDp& config);

}  // namespace spillway::router
