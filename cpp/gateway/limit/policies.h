#pragma once

#include <variant>

#include "gateway/limit/dual_limit.h"
#include "gateway/limit/fixed_limit.h"
#include "gateway/limit/per_tenant.h"
#include "gateway/limit/saturation.h"
#include "gateway/limit/token_budget.h"
#include "gateway/limit/unlimited.h"
#include "gateway/limit/worker_budget.h"

namespace spillway::gateway {

using Limit = std::variant<Unlimited, FixedLimit, WorkerBudget, PerTenant, TokenBudget, DualLimit,
                           Saturation>;

}  // namespace spillway::gateway
