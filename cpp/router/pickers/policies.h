#pragma once

#include <variant>

#include "router/pickers/best.h"
#include "router/pickers/power_of_two.h"
#include "router/pickers/random.h"
#include "router/pickers/softmax.h"
#include "router/pickers/weighted_random.h"
#include "router/python_policies.h"

namespace spillway::router {

/// Every picker. This list is the only place that names them all.
using AnyPicker = std::variant<Best, Random, WeightedRandom, Softmax, PowerOfTwo, PythonPicker>;

}  // namespace spillway::router
