#pragma once

#include <variant>

#include "instance/latency/jittered.h"
#include "instance/latency/linear.h"
#include "instance/latency/roofline.h"
#include "instance/latency/step_table.h"

namespace spillway::instance {

using Latency = std::variant<Linear, Roofline, StepTable, Jittered>;

}  // namespace spillway::instance
