#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "gateway/fairness/cost.h"
#include "signals/needs.h"
#include "sim/schema/python_policy.h"
#include "workload/outcome.h"
#include "workload/tenants.h"

/// The policies of the gateway that are written in Python.
namespace spillway::gateway {

class AdmissionPolicy;
class ControllerPolicy;
class FairnessPolicy;
class LimitPolicy;
class UsageLimitPolicy;
struct Scope;

using AdmissionFactory = sim::PolicyFactory<AdmissionPolicy, const Scope&>;
using FairnessFactory = sim::PolicyFactory<FairnessPolicy, std::span<const double>>;
using LimitFactory = sim::PolicyFactory<LimitPolicy, std::span<const workload::Tenant>>;
using UsageLimitFactory = sim::PolicyFactory<UsageLimitPolicy, std::span<const std::int64_t>>;
using ControllerFactory = sim::PolicyFactory<ControllerPolicy>;

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
  static constexpr signals::Needs needs{.output_lengths = true};
  /// Python code may draw.
  static bool draws() { return true; }
};

std::unique_ptr<AdmissionPolicy> make(const PythonAdmission& config, const Scope& scope);

/// A fairness policy written in Python.
struct PythonFairness : sim::PythonPolicy<FairnessFactory> {
  Cost cost;

  static constexpr std::string_view type_name = "PythonFairness";
  static constexpr std::string_view doc =
      "A fairness policy written in Python (spillway.policies.Fairness).";
  static constexpr signals::Needs needs{.output_lengths = true};
  static void fields(auto field) {
    PythonPolicy::fields(field);
    field("cost", &PythonFairness::cost, "Cost of a request, which the policy is charged.");
  }
};

std::unique_ptr<FairnessPolicy> make(const PythonFairness& config, std::span<const double> weights);

/// A limit written in Python.
struct PythonLimit : sim::PythonPolicy<LimitFactory> {
  static constexpr std::string_view type_name = "PythonLimit";
  static constexpr std::string_view doc =
      "A limit written in Python (spillway.policies.Limit). Because it may read the metrics of the "
      "instances, it is also asked every attempt_period_s while it holds requests.";
  static constexpr signals::Needs needs{
      .first_tokens = true, .fleet_signals = true, .output_lengths = true};
};

std::unique_ptr<LimitPolicy> make(const PythonLimit& config,
                                  std::span<const workload::Tenant> tenants);

/// A usage limit written in Python.
struct PythonUsageLimit : sim::PythonPolicy<UsageLimitFactory> {
  static constexpr std::string_view type_name = "PythonUsageLimit";
  static constexpr std::string_view doc =
      "A usage limit written in Python (spillway.policies.UsageLimit).";
};

/// `priorities`: those of the bands, highest first.
std::unique_ptr<UsageLimitPolicy> make(const PythonUsageLimit& config,
                                       std::span<const std::int64_t> priorities);

/// A limit controller written in Python.
struct PythonController : sim::PythonPolicy<ControllerFactory> {
  static constexpr std::string_view type_name = "PythonController";
  static constexpr std::string_view doc =
      "A limit controller written in Python (spillway.policies.Controller).";
  static constexpr signals::Needs needs{.fleet_signals = true};
};

std::unique_ptr<ControllerPolicy> make(const PythonController& config, std::uint64_t seed);

}  // namespace spillway::gateway
