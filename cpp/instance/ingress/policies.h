#pragma once

#include <variant>

#include "instance/ingress/controlled_delay.h"
#include "instance/ingress/dual_limit_gate.h"
#include "instance/ingress/engine_request_limit.h"
#include "instance/ingress/open.h"
#include "instance/ingress/vllm_queue_limits.h"

namespace spillway::instance {

/// Every ingress. This list is the only place that names them all.
using Ingress =
    std::variant<Open, EngineRequestLimit, VllmQueueLimits, ControlledDelay, DualLimitGate>;

}  // namespace spillway::instance
