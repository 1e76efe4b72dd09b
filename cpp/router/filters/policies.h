#pragma once

#include <variant>

#include "router/filters/concurrency_filter.h"
#include "router/filters/context_length.h"
#include "router/filters/load_imbalance.h"
#include "router/filters/prefix_cache_affinity.h"
#include "router/filters/slo_headroom.h"
#include "router/filters/thresholds.h"
#include "router/filters/utilization_filter.h"
#include "router/python_policies.h"

namespace spillway::router {

/// Every filter. This list is the only place that names them all.
using AnyFilter = std::variant<PrefixCacheAffinity, UtilizationFilter, ConcurrencyFilter,
                               Thresholds, LoadImbalance, SloHeadroom, ContextLength, PythonFilter>;

}  // namespace spillway::router
