#pragma once

#include <memory>
#include <span>
#include <variant>

#include "gateway/limit/dual_limit.h"
#include "gateway/limit/fixed_limit.h"
#include "gateway/limit/group_limit.h"
#include "gateway/limit/per_tenant.h"
#include "gateway/limit/prefill_busy.h"
#include "gateway/limit/saturation.h"
#include "gateway/limit/token_budget.h"
#include "gateway/limit/unlimited.h"
#include "gateway/limit/worker_budget.h"
#include "gateway/python_policies.h"
#include "workload/tenants.h"

namespace spillway::gateway {

class LimitPolicy;

using Limit = std::variant<Unlimited, FixedLimit, WorkerBudget, PerTenant, GroupLimit, TokenBudget,
                           DualLimit, Saturation, PrefillBusy, PythonLimit>;

/// `tenants`, `slo_classes`: those of the run.
std::unique_ptr<LimitPolicy> make_limit(const Limit& limit,
                                        std::span<const workload::Tenant> tenants,
                                        std::span<const workload::SloClass> slo_classes);

}  // namespace spillway::gateway
