#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/follows.h"

namespace spillway::router {

class Scorer;

/// The rule of vLLM's data-parallel coordinator.
struct VllmDp {
  double weight = 1;

  static constexpr std::string_view kind = "vllm_dp", type_name = "VllmDp";
  static constexpr std::string_view doc =
      "By 4 × waiting + running requests: 1 for the smallest value, 0 for the largest; 1 for all "
      "if they are equal (vLLM's data-parallel load balancing).";
  static void fields(auto field) { add_weight<VllmDp>(field); }
  signals::Follows follows() const { return signals::Follows::steps; }
};

std::unique_ptr<Scorer> make(const VllmDp& config);

}  // namespace spillway::router
