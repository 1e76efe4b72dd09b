#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "instance/plant/plant.h"

namespace spillway::instance {

/// Continuous batching, step by step. Its settings are those of the group.
struct StepLoop {
  static constexpr std::string_view kind = "step_loop", type_name = "StepLoop";
  static constexpr std::string_view doc =
      "Continuous batching step by step, with the group's settings of batch, KV memory, scheduler "
      "and latency.";
  static void fields(auto /*field*/) {}
};

/// Defined in `step_loop/engine.cpp`.
std::unique_ptr<Instance> make(const StepLoop& config, const InstanceGroup& group,
                               sim::InstanceId id, signals::SignalSource* reporter,
                               const Environment& environment, std::vector<Engine*>& engines);

}  // namespace spillway::instance
