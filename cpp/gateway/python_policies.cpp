#include "gateway/python_policies.h"

#include "gateway/admission/admission.h"
#include "gateway/controller/controller.h"
#include "gateway/fairness/fairness.h"
#include "gateway/limit/limit.h"
#include "gateway/usage_limit/usage_limit.h"

namespace spillway::gateway {

std::unique_ptr<AdmissionPolicy> make(const PythonAdmission& config, const Scope& scope) {
  return config.make_policy("gateway.admission", scope);
}

std::unique_ptr<FairnessPolicy> make(const PythonFairness& config,
                                     std::span<const double> weights) {
  return config.make_policy("gateway.bands.fairness", weights);
}

std::unique_ptr<LimitPolicy> make(const PythonLimit& config,
                                  std::span<const workload::Tenant> tenants) {
  return config.make_policy("gateway.limit", tenants);
}

std::unique_ptr<UsageLimitPolicy> make(const PythonUsageLimit& config,
                                       std::span<const std::int64_t> priorities) {
  return config.make_policy("gateway.usage_limit", priorities);
}

std::unique_ptr<ControllerPolicy> make(const PythonController& config, std::uint64_t) {
  return config.make_policy("gateway.controller");
}

}  // namespace spillway::gateway
