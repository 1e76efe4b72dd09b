#pragma once

#include <memory>
#include <string_view>

#include "sim/schema/python_policy.h"

namespace spillway::router {

class RoutingPolicy;

using RouterFactory = sim::PolicyFactory<RoutingPolicy>;

/// A routing policy written in Python.
struct PythonRouter : sim::PythonPolicy<RouterFactory> {
  static constexpr std::string_view type_name = "PythonRouter";
  static constexpr std::string_view doc =
      "A routing policy written in Python (spillway.policies.Router).";
  /// It may.
  static bool draws() { return true; }
};

std::unique_ptr<RoutingPolicy> make(const PythonRouter& config);

}  // namespace spillway::router
