#pragma once

#include <variant>

#include "gateway/fairness/deficit_round_robin.h"
#include "gateway/fairness/global_fifo.h"
#include "gateway/fairness/least_attained_service.h"
#include "gateway/fairness/policy_classes.h"
#include "gateway/fairness/start_time_fair.h"
#include "gateway/fairness/tenant_round_robin.h"
#include "gateway/fairness/virtual_token_counter.h"
#include "gateway/python_policies.h"

namespace spillway::gateway {

using Fairness =
    std::variant<GlobalFifo, TenantRoundRobin, DeficitRoundRobin, StartTimeFair,
                 VirtualTokenCounter, LeastAttainedService, PolicyClasses, PythonFairness>;

}  // namespace spillway::gateway
