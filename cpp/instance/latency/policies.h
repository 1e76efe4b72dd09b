#pragma once

#include <variant>

#include "instance/latency/jittered.h"
#include "instance/latency/linear.h"
#include "instance/latency/roofline.h"

namespace spillway::instance {

using Latency = std::variant<Linear, Roofline, Jittered>;

}  // namespace spillway::instance
