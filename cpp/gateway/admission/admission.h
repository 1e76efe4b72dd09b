#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "gateway/admission/policies.h"
#include "gateway/step_costs.h"
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

/// The scope of a policy; constant during a run.
struct Scope {
  std::span<const workload::Tenant> tenants;
  std::span<const workload::SloClass> slo_classes;
  std::span<const std::string> models;  ///< that requests may name; the first one is none
  std::size_t num_instances = 0;
  StepCosts costs{};  ///< of the fleet's servers
};

/// Contract of an admission policy: may this request enter the gateway's queues?
///
/// `decide` is called once per attempt; a retry is a new attempt with other draws. It may advance
/// the policy's own state to `now` (refill a bucket) and note the arrival, but charges nothing.
/// `commit` follows for every policy of the chain, in order, once all of them have admitted the
/// request, at the same instant. Policies whose configuration has `static constexpr bool observes =
/// true` are notified of the further life of admitted requests. A configuration states the policy's
/// needs as `needs` (`signals/needs.h`), and when it draws by `bool draws() const`. Policies see
/// only their arguments: no clocks, globals or I/O.
class AdmissionPolicy {
 public:
  virtual ~AdmissionPolicy() = default;
  virtual Verdict decide(const signals::RequestView& request, const signals::View& view,
                         sim::Time now, sim::Draws& draws) = 0;
  virtual void commit(const signals::RequestView& /*request*/, sim::Time /*now*/) {}

  /// The Retry-After of the refusal that it has just answered with; 0: none.
  virtual sim::Time retry_after(const signals::RequestView& /*request*/, sim::Time /*now*/) {
    return sim::Time{0};
  }

  /// What it has just refused by, beyond its reason; empty: nothing.
  virtual std::string detail() const { return {}; }

  /// Settings have changed; only called with changed ones of its own kind, see `.runtime()`.
  virtual void change(const Admission& /*to*/, const Scope& /*scope*/, sim::Time /*now*/) {
    throw std::logic_error("an admission policy with changeable settings has no change()");
  }

  /// The request has left its queue for the router.
  virtual void dispatched(const signals::RequestView& /*request*/, sim::Time /*now*/) {}
  /// The request's first token has arrived from `instance`.
  virtual void first_token(const signals::RequestView& /*request*/, sim::InstanceId /*instance*/,
                           sim::Time /*now*/) {}
  /// The request has left the system, from a queue or from an instance.
  virtual void finished(const signals::RequestView& /*request*/, workload::Outcome /*outcome*/,
                        sim::Time /*now*/) {}
};

}  // namespace spillway::gateway
