#pragma once

#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::signals {

/// The truth about the future, which no gateway knows: only for policies that say what perfect
/// foresight would be worth, and say so in their settings.
class Oracle {
 public:
  virtual ~Oracle() = default;
  /// When its first token would come if the request were routed to the instance now and nobody
  /// else from now on; kUnset: the instance would refuse it.
  virtual sim::Time first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) = 0;
};

}  // namespace spillway::signals
