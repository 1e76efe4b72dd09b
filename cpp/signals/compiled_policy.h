#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "sim/value.h"

/// Policies of a user that are compiled elsewhere and called through C function pointers. The
/// interface is python/spillway/include/spillway_policy.h.
namespace spillway::signals {

struct RequestRecord;   ///< `spillway_request`
struct InstanceRecord;  ///< `spillway_instance`
struct LegsRecord;      ///< `spillway_legs`

inline constexpr std::int64_t kPolicyAbi = 1;

using DecideFunction = std::int32_t(const RequestRecord*, const InstanceRecord*, std::int64_t,
                                    double now_s, double* state);
using NotifyFunction = void(const RequestRecord*, double now_s, double* state);
using ScoreFunction = void(const RequestRecord*, const InstanceRecord*, std::int64_t, double now_s,
                           double* state, double* scores);
using IsLocalFunction = std::int32_t(const RequestRecord*, const LegsRecord*, double now_s,
                                     double* state);

/// The settings of a compiled policy; those of a seam derive from it. A pointer has no identity
/// beyond a process: `functions` is unset in settings that come from a file or from another
/// process.
template <class Functions>
struct CompiledPolicy {
  std::string name;
  std::string version;
  std::vector<double> state;
  std::shared_ptr<const Functions> functions;

  static constexpr std::string_view kind = "compiled";
  template <class Config>
  static void fields(auto field) {
    field("name", &Config::name, "Name of the policy.");
    field("version", &Config::version,
          "Version of its code, which its author changes with it: policies with the same name, "
          "version and settings are taken to decide alike.");
    field("state", &Config::state,
          "Initial values of the policy's own memory, parameters included: each run begins with a "
          "copy.")
        .dimensionless()
        .range(sim::between(-1e300, 1e300));
    field("functions", &Config::functions, "The functions.").hidden();
  }
  /// Throws ConfigError, with the path of these settings, if there are no functions.
  const Functions& called(std::string_view path) const {
    if (!functions) {
      throw sim::ConfigError({{std::string(path) + ".functions", "'" + name + "'",
                               "must be given again in this process, by spillway.policies"}});
    }
    return *functions;
  }
};

}  // namespace spillway::signals
