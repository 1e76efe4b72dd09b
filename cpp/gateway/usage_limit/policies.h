#pragma once

#include <variant>

#include "gateway/python_policies.h"
#include "gateway/usage_limit/priority_holdback.h"
#include "gateway/usage_limit/soft_reflective.h"
#include "gateway/usage_limit/static_ceilings.h"

namespace spillway::gateway {

using UsageLimit = std::variant<StaticCeilings, PriorityHoldback, SoftReflective, PythonUsageLimit>;

}  // namespace spillway::gateway
