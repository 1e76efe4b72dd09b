#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "router/scorers/weight.h"
#include "sim/schema/python_policy.h"

namespace spillway::router {

class Scorer;
struct ScorerFactory;

/// A scorer written in Python.
struct PythonScorer {
  double weight = 1;
  std::string policy;
  std::string parameters = "{}";
  std::string source_sha256;
  std::shared_ptr<const ScorerFactory> factory;

  static constexpr std::string_view kind = "python", type_name = "PythonScorer";
  static constexpr std::string_view doc =
      "A scorer written in Python (spillway.policies.Scorer). Its code is imported only on "
      "request: by "
      "spillway.policies.load, or by spillway run --allow-python.";
  static void fields(auto field) {
    add_weight<PythonScorer>(field);
    sim::add_python_policy<PythonScorer>(field);
  }
};

/// Throws ConfigError if the Python code has not been imported.
std::unique_ptr<Scorer> make(const PythonScorer& config);

}  // namespace spillway::router
