#pragma once

#include <memory>
#include <string_view>

#include "sim/schema/python_policy.h"

namespace spillway::router {

class Picker;

using PickerFactory = sim::PolicyFactory<Picker>;

/// A picker written in Python.
struct PythonPicker : sim::PythonPolicy<PickerFactory> {
  static constexpr std::string_view type_name = "PythonPicker";
  static constexpr std::string_view doc = "A picker written in Python (spillway.policies.Picker).";
  /// It may.
  static bool draws() { return true; }
};

std::unique_ptr<Picker> make(const PythonPicker& config);

}  // namespace spillway::router
