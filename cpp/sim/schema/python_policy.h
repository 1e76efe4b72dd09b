#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "sim/error.h"
#include "sim/value.h"

namespace spillway::sim {

/// Makes policies of a seam that are defined outside of the core. Each call makes a new one, which
/// belongs to one run. `parameters`: a JSON object.
template <class Policy, class... Context>
struct PolicyFactory : virtual Attachment {
  virtual std::unique_ptr<Policy> make(const std::string& parameters, Context... context) const = 0;
};

/// The settings of a policy written in Python. Those of a seam derive from it. `factory` is unset
/// while the code has not been imported.
template <class Factory>
struct PythonPolicy {
  std::string policy;
  std::string parameters = "{}";
  std::string source_sha256;
  std::shared_ptr<const Factory> factory;

  static constexpr std::string_view kind = "python";
  static void fields(auto field) {
    field("policy", &PythonPolicy::policy,
          "Where the policy is defined, as module:name, e.g. my_policies:SoftCeiling. It is "
          "imported only on request: by spillway.policies.load, or by spillway run "
          "--allow-python.");
    field("parameters", &PythonPolicy::parameters,
          "Keyword arguments of the class or factory, as a JSON object.");
    field("source_sha256", &PythonPolicy::source_sha256,
          "SHA-256 of the policy's source code; empty: not recorded.");
    field("factory", &PythonPolicy::factory, "The imported class or factory.").hidden();
  }
  /// The policy of a run, given the path of these settings. Throws ConfigError if the code has not
  /// been imported.
  auto make_policy(std::string_view path, auto&&... context) const {
    if (!factory) {
      throw ConfigError({{std::string(path) + ".policy", "'" + policy + "'",
                          "its Python code must be imported first: "
                          "spillway.policies.load(simulation), or spillway run --allow-python"}});
    }
    return factory->make(parameters, std::forward<decltype(context)>(context)...);
  }
};

}  // namespace spillway::sim
