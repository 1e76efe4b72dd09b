#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "sim/schema/python_policy.h"

namespace spillway::router {

class RoutingPolicy;
struct RouterFactory;

/// A routing policy written in Python.
struct PythonRouter {
  std::string policy;
  std::string parameters = "{}";
  std::string source_sha256;
  std::shared_ptr<const RouterFactory> factory;

  static constexpr std::string_view kind = "python", type_name = "PythonRouter";
  static constexpr std::string_view doc =
      "A routing policy written in Python (spillway.policies.Router). Its code is imported only on "
      "request: by "
      "spillway.policies.load, or by spillway run --allow-python.";
  static void fields(auto field) { sim::add_python_policy<PythonRouter>(field); }
  /// It may.
  static bool draws() { return true; }
};

/// Throws ConfigError if the Python code has not been imported.
std::unique_ptr<RoutingPolicy> make(const PythonRouter& config);

}  // namespace spillway::router
