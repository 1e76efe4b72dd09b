#pragma once

#include <variant>

#include "router/deciders/conditional.h"
#include "router/deciders/fixed.h"
#include "router/deciders/uncached_tokens.h"

namespace spillway::router {

/// Every decider. This list is the only place that names them all.
using AnyDecider = std::variant<AlwaysRemote, NeverRemote, UncachedTokens, Conditional>;

}  // namespace spillway::router
