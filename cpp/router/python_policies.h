#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/needs.h"
#include "sim/schema/python_policy.h"

/// The policies of the router that are written in Python.
namespace spillway::router {

class RoutingPolicy;
class Filter;
class Scorer;
class Picker;
class Decider;

using RouterFactory = sim::PolicyFactory<RoutingPolicy>;
using FilterFactory = sim::PolicyFactory<Filter>;
using ScorerFactory = sim::PolicyFactory<Scorer>;
using PickerFactory = sim::PolicyFactory<Picker>;
using DeciderFactory = sim::PolicyFactory<Decider>;

/// A routing policy written in Python.
struct PythonRouter : sim::PythonPolicy<RouterFactory> {
  static constexpr std::string_view type_name = "PythonRouter";
  static constexpr std::string_view doc =
      "A routing policy written in Python (spillway.policies.Router).";
  /// Python code may draw.
  static bool draws() { return true; }
  static constexpr signals::Needs needs{.output_lengths = true};
};

std::unique_ptr<RoutingPolicy> make(const PythonRouter& config);

/// A filter written in Python.
struct PythonFilter : sim::PythonPolicy<FilterFactory> {
  static constexpr std::string_view type_name = "PythonFilter";
  static constexpr std::string_view doc =
      "A filter written in Python (spillway.policies.Filter). It keeps all instances if none of "
      "those that passed the previous filters passes it.";
  /// Python code may draw.
  static bool draws() { return true; }
  static constexpr signals::Needs needs{.output_lengths = true};
};

std::unique_ptr<Filter> make(const PythonFilter& config);

/// A scorer written in Python.
struct PythonScorer : sim::PythonPolicy<ScorerFactory> {
  double weight = 1;

  static constexpr std::string_view type_name = "PythonScorer";
  static constexpr std::string_view doc = "A scorer written in Python (spillway.policies.Scorer).";
  static void fields(auto field) {
    add_weight<PythonScorer>(field);
    PythonPolicy::fields(field);
  }
  static constexpr signals::Needs needs{.output_lengths = true};
};

std::unique_ptr<Scorer> make(const PythonScorer& config);

/// A picker written in Python.
struct PythonPicker : sim::PythonPolicy<PickerFactory> {
  static constexpr std::string_view type_name = "PythonPicker";
  static constexpr std::string_view doc = "A picker written in Python (spillway.policies.Picker).";
  /// Python code may draw.
  static bool draws() { return true; }
};

std::unique_ptr<Picker> make(const PythonPicker& config);

/// A decider written in Python.
struct PythonDecider : sim::PythonPolicy<DeciderFactory> {
  static constexpr std::string_view type_name = "PythonDecider";
  static constexpr std::string_view doc =
      "A decider written in Python (spillway.policies.Decider).";
  static constexpr signals::Needs needs{.prefix_index = true, .output_lengths = true};
  static constexpr bool reads_loads = true, reads_prefill_cache = true;
};

std::unique_ptr<Decider> make(const PythonDecider& config);

}  // namespace spillway::router
