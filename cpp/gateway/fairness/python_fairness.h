#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gateway/fairness/cost.h"
#include "sim/schema/python_policy.h"

namespace spillway::gateway {

class FairnessPolicy;
struct FairnessFactory;

/// A fairness policy written in Python.
struct PythonFairness {
  std::string policy;
  std::string parameters = "{}";
  std::string source_sha256;
  Cost cost;
  std::shared_ptr<const FairnessFactory> factory;

  static constexpr std::string_view kind = "python", type_name = "PythonFairness";
  static constexpr std::string_view doc =
      "A fairness policy written in Python (spillway.policies.Fairness). Its code is imported only "
      "on request: "
      "by spillway.policies.load, or by spillway run --allow-python.";
  static void fields(auto field) {
    sim::add_python_policy<PythonFairness>(field);
    field("cost", &PythonFairness::cost, "Cost of a request, which the policy is charged.");
  }
};

/// Throws ConfigError if the Python code has not been imported.
std::unique_ptr<FairnessPolicy> make(const PythonFairness& config, std::span<const double> weights);

}  // namespace spillway::gateway
