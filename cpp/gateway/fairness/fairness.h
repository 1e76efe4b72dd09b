#pragma once

#include <cstdint>
#include <optional>

#include "gateway/queue/tenant_queues.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::gateway {

/// When a charge falls due.
enum class ChargePhase : std::uint8_t { enqueue, dispatch, first_token, token, completion };

/// Contract of a fairness policy: whose turn is it? One object per band; flows are tenants.
///
/// `push` tells that a request has joined `flow`, which may have become backlogged by it. `next`
/// names the flow whose head goes next, or none; `may_start(flow)` says whether the limit would let
/// that head go. It must not assume that the dispatch succeeds: `charge` with phase `dispatch`
/// tells that it did. `charge` accounts `cost` units of service
///; `settle` corrects an estimate once the true cost is known.
class FairnessPolicy {
 public:
  /// A borrowed predicate over flows, valid during the call it is passed to.
  class MayStart {
   public:
    virtual ~MayStart() = default;
    virtual bool operator()(sim::TenantId flow) const = 0;
  };

  virtual ~FairnessPolicy() = default;
  virtual void push(sim::TenantId flow, const TenantQueues& queues, sim::Time now) = 0;
  virtual std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                            sim::Time now) = 0;
  virtual void charge(sim::TenantId flow, ChargePhase phase, double cost, sim::Time now) = 0;
  virtual void settle(sim::TenantId flow, double charged, double actual, sim::Time now) = 0;
};

}  // namespace spillway::gateway
