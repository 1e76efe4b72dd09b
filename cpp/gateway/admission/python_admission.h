#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "sim/schema/python_policy.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

using AdmissionFactory = sim::PolicyFactory<AdmissionPolicy, const Scope&>;

/// An admission policy written in Python.
struct PythonAdmission : sim::PythonPolicy<AdmissionFactory> {
  static constexpr std::string_view type_name = "PythonAdmission";
  static constexpr std::string_view doc =
      "An admission policy written in Python (spillway.policies.Admission).";
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

std::unique_ptr<AdmissionPolicy> make(const PythonAdmission& config, const Scope& scope);

}  // namespace spillway::gateway
