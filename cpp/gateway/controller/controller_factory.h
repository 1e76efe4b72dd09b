#pragma once

#include <memory>

#include "sim/value.h"

namespace spillway::gateway {

class ControllerPolicy;

/// Makes limit controllers that are defined outside of the core.
struct ControllerFactory : virtual sim::Attachment {
  /// A new policy, for one run.
  virtual std::unique_ptr<ControllerPolicy> make_controller() const = 0;
};

}  // namespace spillway::gateway
