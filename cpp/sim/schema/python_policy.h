#pragma once

#include <string>
#include <string_view>

#include "sim/error.h"

namespace spillway::sim {

/// The fields common to all policies that are written in Python. `factory` is what makes the policy
/// of a run; it is unset while the Python code has not been imported.
template <class Config>
void add_python_policy(auto field) {
  field("policy", &Config::policy,
        "Where the policy is defined, as module:name, e.g. my_policies:SoftCeiling.");
  field("parameters", &Config::parameters,
        "Keyword arguments of the class or factory, as a JSON object.");
  field("source_sha256", &Config::source_sha256,
        "SHA-256 of the policy's source code; empty: not recorded.");
  field("factory", &Config::factory, "The imported class or factory.").hidden();
}

/// Of a policy whose Python code has not been imported.
inline Violation not_imported(std::string_view path, const std::string& policy) {
  return {std::string(path) + ".policy", "'" + policy + "'",
          "its Python code must be imported first: spillway.policies.load(simulation), or spillway "
          "run --allow-python"};
}

}  // namespace spillway::sim
