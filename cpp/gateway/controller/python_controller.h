#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/python_policy.h"

namespace spillway::gateway {

class ControllerPolicy;
struct ControllerFactory;

/// A limit controller written in Python.
struct PythonController {
  std::string policy;
  std::string parameters = "{}";
  std::string source_sha256;

  std::shared_ptr<const ControllerFactory> factory;

  static constexpr std::string_view kind = "python", type_name = "PythonController";
  static constexpr std::string_view doc =
      "A limit controller written in Python (spillway.policies.Controller). Its code is imported "
      "only on request: "
      "by spillway.policies.load, or by spillway run --allow-python.";
  static void fields(auto field) { sim::add_python_policy<PythonController>(field); }
  static constexpr signals::Needs needs{.fleet_signals = true};
};

/// Throws ConfigError if the Python code has not been imported.
std::unique_ptr<ControllerPolicy> make(const PythonController& config, std::uint64_t seed);

}  // namespace spillway::gateway
