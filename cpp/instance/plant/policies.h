#pragma once

#include <variant>

#include "instance/plant/processor_sharing.h"
#include "instance/plant/step_loop.h"
#include "sim/field.h"

namespace spillway::instance {

/// Every plant. This list is the only place that names them all.
using Plant = std::variant<StepLoop, ProcessorSharing>;

}  // namespace spillway::instance

extern template struct spillway::sim::Codec<spillway::instance::Plant>;
