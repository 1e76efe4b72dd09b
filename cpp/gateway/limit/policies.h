#pragma once

#include <variant>

#include "gateway/limit/fixed_limit.h"
#include "gateway/limit/unlimited.h"
#include "sim/field.h"

namespace spillway::gateway {

using Limit = std::variant<Unlimited, FixedLimit>;

}  // namespace spillway::gateway

extern template struct spillway::sim::Codec<spillway::gateway::Limit>;
