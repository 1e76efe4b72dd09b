#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/python_policy.h"

namespace spillway::gateway {

class ControllerPolicy;

using ControllerFactory = sim::PolicyFactory<ControllerPolicy>;

/// A limit controller written in Python.
struct PythonController : sim::PythonPolicy<ControllerFactory> {
  static constexpr std::string_view type_name = "PythonController";
  static constexpr std::string_view doc =
      "A limit controller written in Python (spillway.policies.Controller).";
  static constexpr signals::Needs needs{.fleet_signals = true};
};

std::unique_ptr<ControllerPolicy> make(const PythonController& config, std::uint64_t seed);

}  // namespace spillway::gateway
