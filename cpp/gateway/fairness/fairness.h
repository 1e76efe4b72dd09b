#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "gateway/fairness/policies.h"
#include "gateway/queue/tenant_queues.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/tenants.h"

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
    /// Whether a request of the i-th class may, where a policy classes requests.
    virtual bool of_class(std::size_t /*i*/, sim::RequestId /*head*/) const { return any(); }
  };

  virtual ~FairnessPolicy() = default;
  virtual void joined(sim::TenantId flow, const TenantQueues& queues, sim::Time now) = 0;
  virtual void left(sim::TenantId /*flow*/, const TenantQueues& /*queues*/, sim::Time /*now*/) {}
  virtual std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                            sim::Time now) = 0;
  virtual void dispatched(sim::TenantId /*flow*/, const TenantQueues& /*queues*/,
                          sim::Time /*now*/) {}
  virtual void charge(sim::TenantId /*flow*/, double /*amount*/, sim::Time /*now*/) {}
  /// Whether the policy chooses requests instead of flows. Then `entered` and `removed` follow a
  /// request into its queue and out of it, unless `next_request` takes it, which is called like
  /// `next`.
  virtual bool chooses_requests() const { return false; }
  /// Whether the request may join its queue. `slo_class`: its own.
  virtual bool has_room(const signals::RequestView& /*request*/,
                        const workload::SloClass& /*slo_class*/, const signals::View& /*view*/) {
    return true;
  }
  virtual void entered(const signals::RequestView& /*request*/,
                       const workload::SloClass& /*slo_class*/, const signals::View& /*view*/,
                       sim::Time /*now*/) {}
  virtual void removed(sim::RequestId /*request*/) {}
  virtual std::optional<sim::RequestId> next_request(const MayStart& /*may_start*/) {
    return std::nullopt;
  }

  /// A cycle of dispatch has come to the band, which is open and empty.
  virtual void found_empty() {}
  /// The policy of another band; both may count the service of all their bands together.
  virtual void share_service(FairnessPolicy& /*other*/) {}

  /// Settings or weights have changed.
  virtual void change(const Fairness& /*to*/, std::span<const double> /*weights*/) {}

  /// Whether drains with empty queues matter: the policy commits to a flow, and a released permit
  /// advances it.
  virtual bool drains_when_empty() const { return false; }
  /// Whether charges decay with time and therefore must not be delayed.
  virtual bool decays_with_time() const { return false; }
};

}  // namespace spillway::gateway
