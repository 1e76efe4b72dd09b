#pragma once

#include <memory>
#include <span>

#include "sim/value.h"

namespace spillway::gateway {

class FairnessPolicy;

/// Makes fairness policies that are defined outside of the core.
struct FairnessFactory : virtual sim::Attachment {
  /// A new policy, for one run and band.
  virtual std::unique_ptr<FairnessPolicy> make_fairness(std::span<const double> weights) const = 0;
};

}  // namespace spillway::gateway
