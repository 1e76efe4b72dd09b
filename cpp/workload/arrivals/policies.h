#pragma once

#include <variant>

#include "workload/arrivals/closed_loop.h"
#include "workload/arrivals/constant.h"
#include "workload/arrivals/gamma.h"
#include "workload/arrivals/hawkes.h"
#include "workload/arrivals/mmpp.h"
#include "workload/arrivals/poisson.h"
#include "workload/arrivals/weibull.h"

namespace spillway::workload {

using Arrivals = std::variant<Poisson, Gamma, Weibull, Constant, ClosedLoop, Mmpp, Hawkes>;

}  // namespace spillway::workload
