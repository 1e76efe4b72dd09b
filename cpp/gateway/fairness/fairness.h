#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "gateway/fairness/policies.h"
#include "gateway/queue/tenant_queues.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::gateway {

/// Contract of a fairness policy: which flow is next? One object per band; flows are tenants.
///
/// `joined`: a request has joined `flow`; `left`: one left it without being dispatched. `next`
/// returns the flow whose head goes next, if any; it must not assume that the dispatch succeeds.
/// `dispatched` confirms it, when the request is no longer in `queues`. `next` is called at every
/// drain (a request joined, a permit was released), even when no permit is free, and directly
/// before `dispatched`; with empty queues only if `drains_when_empty`. `charge` accounts service in
/// the unit of the policy's `Cost` when it is charged; a negative amount corrects an overcharge.
/// Charges for joining, leaving and dispatch follow `joined`, `left` and `dispatched`. The
/// immediate charge for dispatching the head of a flow is its `Entry::cost`.
class FairnessPolicy {
 public:
  /// The permission of the concurrency limits; valid during the call.
  class MayStart {
   public:
    virtual ~MayStart() = default;
    /// Precondition: the flow is not empty.
    virtual bool operator()(sim::TenantId flow) const = 0;
    /// Whether any request may start at all.
    virtual bool any() const = 0;
    /// Whether the flow's head waits for a limit of its own tenant or class, so that others may
    /// overtake it. Precondition: as above.
    virtual bool waits_for_own_limit(sim::TenantId /*flow*/) const { return false; }
  };

  virtual ~FairnessPolicy() = default;
  virtual void joined(sim::TenantId flow, const TenantQueues& queues, sim::Time now) = 0;
  virtual void left(sim::TenantId /*flow*/, const TenantQueues& /*queues*/, sim::Time /*now*/) {}
  virtual std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                            sim::Time now) = 0;
  virtual void dispatched(sim::TenantId /*flow*/, const TenantQueues& /*queues*/,
                          sim::Time /*now*/) {}
  virtual void charge(sim::TenantId /*flow*/, double /*amount*/, sim::Time /*now*/) {}

  /// Settings or weights have changed.
  virtual void change(const Fairness& /*to*/, std::span<const double> /*weights*/) {}

  /// Whether drains with empty queues matter: the policy commits to a flow, and a released permit
  /// advances it.
  virtual bool drains_when_empty() const { return false; }
  /// Whether charges decay with time and therefore must not be delayed.
  virtual bool decays_with_time() const { return false; }
};

}  // namespace spillway::gateway
