#pragma once

#include <memory>

#include "sim/value.h"

namespace spillway::router {

class RoutingPolicy;

/// Makes routing policies that are defined outside of the core.
struct RouterFactory : virtual sim::Attachment {
  /// A new one, for one run.
  virtual std::unique_ptr<RoutingPolicy> make_router() const = 0;
};

}  // namespace spillway::router
