#pragma once

#include <variant>

#include "router/always_busiest.h"
#include "router/kv_cost.h"
#include "router/least_loaded.h"
#include "router/python_policies.h"
#include "router/round_robin.h"
#include "router/weighted.h"

namespace spillway::router {

/// Every routing policy. This list is the only place that names them all.
using Router = std::variant<RoundRobin, LeastLoaded, AlwaysBusiest, Weighted, KvCost, PythonRouter>;

}  // namespace spillway::router
