#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "signals/view.h"
#include "sim/ids.h"
#include "sim/rng.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/tenants.h"

namespace spillway::gateway {

/// A policy's answer. `reason` indexes the policy's own list of reasons.
struct Verdict {
  bool admitted = true;
  std::uint8_t reason = 0;

  static constexpr Verdict admit() { return {}; }
  static constexpr Verdict reject(std::uint8_t reason_index = 0) { return {false, reason_index}; }
};

/// What a policy is made for; it stays as it is during a run.
struct Scope {
  std::span<const workload::Tenant> tenants;
  std::span<const workload::SloClass> slo_classes;
  std::size_t num_instances = 0;
};

/// Contract of an admission policy: may this request enter the gateway's queues?
///
/// `decide` is asked once for each attempt: a client that asks again comes anew, with other draws.
/// It may bring the policy's own state up to `now` (refill a bucket) and note that a request has
/// come, but charges nothing. `commit` follows for every policy of the chain, in order, once all of
/// them have admitted the request, at the same instant. What becomes of an admitted request is told
/// to policies whose configuration says `static constexpr bool observes = true`. A configuration
/// states what its policy needs to see as `needs` (`signals/needs.h`), and when it draws by `bool
/// draws() const`. Policies see what they are given: no clocks, globals or I/O.
class AdmissionPolicy {
 public:
  virtual ~AdmissionPolicy() = default;
  virtual Verdict decide(const signals::RequestView& request, const signals::View& view,
                         sim::Time now, sim::Draws& draws) = 0;
  virtual void commit(const signals::RequestView& /*request*/, sim::Time /*now*/) {}

  /// It has left its queue for the router.
  virtual void dispatched(const signals::RequestView& /*request*/, sim::Time /*now*/) {}
  /// Its first token has come from `instance`.
  virtual void first_token(const signals::RequestView& /*request*/, sim::InstanceId /*instance*/,
                           sim::Time /*now*/) {}
  /// It has left the system, from a queue or from an instance.
  virtual void finished(const signals::RequestView& /*request*/, workload::Outcome /*outcome*/,
                        sim::Time /*now*/) {}
};

}  // namespace spillway::gateway
