#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "sim/schema/python_policy.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct AdmissionFactory;
struct Scope;

/// An admission policy written in Python.
struct PythonAdmission {
  std::string policy;
  std::string parameters = "{}";
  std::string source_sha256;
  std::shared_ptr<const AdmissionFactory> factory;

  static constexpr std::string_view kind = "python", type_name = "PythonAdmission";
  static constexpr std::string_view doc =
      "An admission policy written in Python (spillway.policies.Admission). Its code is imported "
      "only on request: by spillway.policies.load, or by spillway run --allow-python.";
  static void fields(auto field) { sim::add_python_policy<PythonAdmission>(field); }
  static constexpr std::array reasons{
      workload::Reason{"python_saturated", workload::categories::kSaturated,
                       "the Python policy rejects the request: False, or Reject('saturated')"},
      workload::Reason{"python_rate_limited", workload::categories::kRateLimited,
                       "the Python policy rejects the request: Reject('rate_limited')"},
      workload::Reason{"python_unservable", workload::categories::kUnservable,
                       "the Python policy rejects the request: Reject('unservable')"}};
  static constexpr bool observes = true;
  /// It may.
  static bool draws() { return true; }
};

/// Throws ConfigError if the Python code has not been imported.
std::unique_ptr<AdmissionPolicy> make(const PythonAdmission& config, const Scope& scope);

}  // namespace spillway::gateway
