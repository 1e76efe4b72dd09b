#pragma once

#include <cstdint>
#include <optional>

#include "gateway/queue/tenant_queues.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::gateway {

/// Contract of a fairness policy: whose turn is it? One object per band; flows are tenants.
///
/// `joined` says that a request has joined `flow`, `left` that one left it without being served.
/// `next` names the flow whose head goes next, or none; it must not assume that the dispatch
/// succeeds: `dispatched` says that it did, the request no longer being in `queues`. `next` is
/// called at every drain (a request joined, a permit returned), also when no permit is free, and
/// directly before `dispatched`; where nothing is queued, if `drains_when_empty`. `charge` accounts
/// service, in the unit of the policy's `Cost`, as it falls due; a negative amount corrects what
/// was charged too much. What a request is charged when it joins, leaves or is dispatched is
/// charged after `joined`, `left` or `dispatched`. What dispatching the head of a flow will charge
/// at once is its `Entry::cost`.
class FairnessPolicy {
 public:
  /// What the concurrency limit would let go, valid during the call it is passed to.
  class MayStart {
   public:
    virtual ~MayStart() = default;
    /// Precondition: the flow is not empty.
    virtual bool operator()(sim::TenantId flow) const = 0;
    /// False if no request may start, whichever it is.
    virtual bool any() const = 0;
  };

  virtual ~FairnessPolicy() = default;
  virtual void joined(sim::TenantId flow, const TenantQueues& queues, sim::Time now) = 0;
  virtual void left(sim::TenantId /*flow*/, const TenantQueues& /*queues*/, sim::Time /*now*/) {}
  virtual std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                            sim::Time now) = 0;
  virtual void dispatched(sim::TenantId /*flow*/, const TenantQueues& /*queues*/,
                          sim::Time /*now*/) {}
  virtual void charge(sim::TenantId /*flow*/, double /*amount*/, sim::Time /*now*/) {}

  /// Whether a drain means something to it while nothing waits: it commits to a flow, and a permit
  /// that returns moves it on.
  virtual bool drains_when_empty() const { return false; }
  /// Whether what was charged counts less as time passes, so that charges must not wait.
  virtual bool decays_with_time() const { return false; }
};

}  // namespace spillway::gateway
