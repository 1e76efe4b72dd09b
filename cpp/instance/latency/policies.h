#pragma once

#include <variant>

#include "instance/latency/linear.h"

namespace spillway::instance {

using Latency = std::variant<Linear>;

}  // namespace spillway::instance
