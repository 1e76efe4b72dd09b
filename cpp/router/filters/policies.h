#pragma once

#include <variant>

#include "router/filters/prefix_cache_affinity.h"
#include "router/filters/utilization_filter.h"
#include "sim/field.h"

namespace spillway::router {

/// Every filter. This list is the only place that names them all.
using AnyFilter = std::variant<PrefixCacheAffinity, UtilizationFilter>;

}  // namespace spillway::router

extern template struct spillway::sim::Codec<spillway::router::AnyFilter>;
