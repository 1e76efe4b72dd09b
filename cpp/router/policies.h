#pragma once

#include <type_traits>
#include <variant>

#include "router/always_busiest.h"
#include "router/cache_aware.h"
#include "router/kv_cost.h"
#include "router/least_loaded.h"
#include "router/python_policies.h"
#include "router/round_robin.h"
#include "router/weighted.h"
#include "workload/outcome.h"

namespace spillway::router {

/// Every routing policy. This list is the only place that names them all.
using Router = std::variant<RoundRobin, LeastLoaded, AlwaysBusiest, Weighted, KvCost, CacheAware,
                            PythonRouter>;

/// The closed set of the reasons for which a router rejects.
inline constexpr auto kRouterReasons = workload::concat_reasons(std::type_identity<Router>{});

}  // namespace spillway::router
