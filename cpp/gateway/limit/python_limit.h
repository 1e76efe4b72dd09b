#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/python_policy.h"
#include "workload/tenants.h"

namespace spillway::gateway {

class LimitPolicy;

using LimitFactory = sim::PolicyFactory<LimitPolicy, std::span<const workload::Tenant>>;

/// A limit written in Python.
struct PythonLimit : sim::PythonPolicy<LimitFactory> {
  static constexpr std::string_view type_name = "PythonLimit";
  static constexpr std::string_view doc =
      "A limit written in Python (spillway.policies.Limit). Because it may read the metrics of the "
      "instances, it is also asked every attempt_period_s while it holds requests.";
  static constexpr signals::Needs needs{.first_tokens = true, .fleet_signals = true};
};

std::unique_ptr<LimitPolicy> make(const PythonLimit& config,
                                  std::span<const workload::Tenant> tenants);

}  // namespace spillway::gateway
