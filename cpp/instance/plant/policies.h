#pragma once

#include <variant>

#include "instance/plant/processor_sharing.h"
#include "instance/plant/step_loop.h"

namespace spillway::instance {

/// Every plant. This list is the only place that names them all.
using Plant = std::variant<StepLoop, ProcessorSharing>;

}  // namespace spillway::instance
