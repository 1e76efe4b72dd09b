#pragma once

#include <variant>

#include "gateway/controller/aimd.h"
#include "gateway/controller/concur.h"
#include "gateway/controller/envoy_gradient.h"
#include "gateway/controller/gradient2.h"
#include "gateway/controller/mimd.h"
#include "gateway/controller/pid.h"
#include "gateway/controller/static_limit.h"
#include "gateway/controller/vegas.h"
#include "gateway/python_policies.h"

namespace spillway::gateway {

using Controller = std::variant<StaticLimit, Aimd, Mimd, Pid, Vegas, Gradient2, EnvoyGradient,
                                Concur, PythonController>;

}  // namespace spillway::gateway
