#pragma once

#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::signals {

/// Knows what an instance would do next, as no gateway can: only for policies that study what such
/// knowledge is worth, and say so in their settings. It is exact about one request on one instance
/// as long as no other request follows; a policy that reads it is no bound for the others.
class ExactEstimator {
 public:
  virtual ~ExactEstimator() = default;
  /// When its first token would come if the request were routed to the instance now and no other
  /// from now on; kUnset: the instance would refuse it.
  virtual sim::Time first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) = 0;
};

}  // namespace spillway::signals
