#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gateway/fairness/cost.h"
#include "sim/schema/python_policy.h"

namespace spillway::gateway {

class FairnessPolicy;

using FairnessFactory = sim::PolicyFactory<FairnessPolicy, std::span<const double>>;

/// A fairness policy written in Python.
struct PythonFairness : sim::PythonPolicy<FairnessFactory> {
  Cost cost;

  static constexpr std::string_view type_name = "PythonFairness";
  static constexpr std::string_view doc =
      "A fairness policy written in Python (spillway.policies.Fairness).";
  static void fields(auto field) {
    PythonPolicy::fields(field);
    field("cost", &PythonFairness::cost, "Cost of a request, which the policy is charged.");
  }
};

std::unique_ptr<FairnessPolicy> make(const PythonFairness& config, std::span<const double> weights);

}  // namespace spillway::gateway
