#pragma once

#include <memory>

#include "sim/value.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// Makes admission policies that are defined outside of the core.
struct AdmissionFactory : virtual sim::Attachment {
  /// A new policy, for one run.
  virtual std::unique_ptr<AdmissionPolicy> make_admission(const Scope& scope) const = 0;
};

}  // namespace spillway::gateway
