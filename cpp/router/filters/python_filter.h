#pragma once

#include <memory>
#include <string_view>

#include "sim/schema/python_policy.h"

namespace spillway::router {

class Filter;

using FilterFactory = sim::PolicyFactory<Filter>;

/// A filter written in Python.
struct PythonFilter : sim::PythonPolicy<FilterFactory> {
  static constexpr std::string_view type_name = "PythonFilter";
  static constexpr std::string_view doc =
      "A filter written in Python (spillway.policies.Filter). It keeps all instances if none of "
      "those that passed the previous filters passes it.";
  /// It may.
  static bool draws() { return true; }
};

std::unique_ptr<Filter> make(const PythonFilter& config);

}  // namespace spillway::router
