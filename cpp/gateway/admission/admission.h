#pragma once

#include <cstdint>

#include "signals/view.h"
#include "sim/rng.h"
#include "sim/time.h"

namespace spillway::gateway {

/// A policy's answer. `reason` indexes the policy's own list of reasons.
struct Verdict {
  bool admitted = true;
  std::uint8_t reason = 0;

  static constexpr Verdict admit() { return {}; }
  static constexpr Verdict reject(std::uint8_t reason_index = 0) { return {false, reason_index}; }
};

/// Contract of an admission policy: may this request enter the gateway's queues?
///
/// `decide` may bring the policy's own state up to `now` (refill a bucket) but charges nothing; the
/// same call twice gives the same answer. `commit` follows for every policy of the chain, in order,
/// once all of them have admitted the request, at the same instant. `finished` tells of every
/// admitted request that has left the system. Policies see what they are given: no clocks, globals
/// or I/O.
class AdmissionPolicy {
 public:
  virtual ~AdmissionPolicy() = default;
  virtual Verdict decide(const signals::RequestView& request, const signals::View& view,
                         sim::Time now, sim::Draws& draws) = 0;
  virtual void commit(const signals::RequestView& /*request*/, sim::Time /*now*/) {}
  virtual void finished(const signals::RequestView& /*request*/, sim::Time /*now*/) {}
};

}  // namespace spillway::gateway
