#pragma once

#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::signals {

/// Predicts an instance exactly, which no real gateway can: only for policies that study the value
/// of such knowledge and say so in their settings. The prediction is exact for one request on one
/// instance as long as no other request follows; a policy that uses it is not an upper bound on
/// other policies.
class ExactEstimator {
 public:
  virtual ~ExactEstimator() = default;
  /// Time of the first token if the request were routed to the instance now and no other request
  /// followed; kUnset: the instance would refuse it.
  virtual sim::Time first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) = 0;
};

}  // namespace spillway::signals
