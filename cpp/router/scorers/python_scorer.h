#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "sim/schema/python_policy.h"

namespace spillway::router {

class Scorer;

using ScorerFactory = sim::PolicyFactory<Scorer>;

/// A scorer written in Python.
struct PythonScorer : sim::PythonPolicy<ScorerFactory> {
  double weight = 1;

  static constexpr std::string_view type_name = "PythonScorer";
  static constexpr std::string_view doc = "A scorer written in Python (spillway.policies.Scorer).";
  static void fields(auto field) {
    add_weight<PythonScorer>(field);
    PythonPolicy::fields(field);
  }
};

std::unique_ptr<Scorer> make(const PythonScorer& config);

}  // namespace spillway::router
