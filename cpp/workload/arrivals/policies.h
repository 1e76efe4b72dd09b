#pragma once

#include <variant>

#include "sim/field.h"
#include "workload/arrivals/closed_loop.h"
#include "workload/arrivals/constant.h"
#include "workload/arrivals/gamma.h"
#include "workload/arrivals/poisson.h"
#include "workload/arrivals/weibull.h"

namespace spillway::workload {

using Arrivals = std::variant<Poisson, Gamma, Weibull, Constant, ClosedLoop>;

}  // namespace spillway::workload

extern template struct spillway::sim::Codec<spillway::workload::Arrivals>;
