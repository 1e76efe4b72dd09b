#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gateway/charging.h"
#include "gateway/config.h"
#include "gateway/fairness/fairness.h"
#include "gateway/queue/tenant_queues.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_table.h"

namespace spillway::gateway {

/// Reads the numbers of tokens that requests have emitted.
class ServiceMeter {
 public:
  virtual ~ServiceMeter() = default;
  /// Tokens emitted up to `now`, by group of requests; valid until the next call.
  virtual const std::vector<std::int64_t>& emitted(sim::Time now) = 0;
};

/// One band: its tenants' queues, the fairness among them, and the cost of its requests.
class BandQueues final {
 public:
  /// `classes`: those with requests in the band.
  BandQueues(const Band& config, const workload::RequestTable& requests,
             std::vector<std::size_t> classes);

  std::int64_t priority() const { return priority_; }
  std::size_t size() const { return queues_.size(); }
  std::size_t length(sim::TenantId tenant) const { return queues_.length(tenant); }
  /// The tenants with requests in the band.
  std::span<const sim::TenantId> backlogged() const { return queues_.backlogged(); }
  /// Whether a drain may have an effect.
  bool is_due() const { return queues_.size() > 0 || drains_when_empty_; }
  /// The tenant's next request. Precondition: its queue is not empty.
  sim::RequestId head(sim::TenantId tenant) const { return queues_.head(tenant).request; }

  /// To be called if tokens are charged as they are emitted.
  void set_meter(ServiceMeter& meter) {
    if (charging_ && charging_->charges_tokens()) meter_ = &meter;
  }

  /// Counts service together with another band, if the fairness policies of both do.
  void share_service(BandQueues& other) { fairness_->share_service(*other.fairness_); }

  /// Settings or tenants have changed. `from`: those in force before.
  void change(const Band& from, const Band& to, std::span<const workload::Tenant> tenants,
              bool are_weights_new, sim::Time now);

  /// Whether any instance is ready.
  void set_servers(bool has_servers, sim::Time now) { queues_.set_servers(has_servers, now); }

  // ---- room --------------------------------------------------------------------------------

  bool is_full() const { return max_requests_ && queues_.size() >= *max_requests_; }
  bool is_full_for(sim::TenantId tenant) const {
    return queues_.length(tenant) >= max_of_tenant_[tenant.index()];
  }
  /// Whether the fairness policy chooses requests instead of flows.
  bool chooses_requests() const { return chooses_requests_; }
  /// Whether it lets the request join. Precondition: `chooses_requests`.
  bool has_room(sim::RequestId newcomer, const signals::View& view) {
    return fairness_->has_room({requests_, newcomer}, requests_.class_of(newcomer), view);
  }
  /// Removes a request of the tenant to make room for `newcomer`; unset if the newcomer is rejected
  /// instead. Precondition: `is_full_for`.
  std::optional<sim::RequestId> make_room(sim::RequestId newcomer, sim::Time now);
  /// Removes the least important request, the newest of equals; unset if none has a priority below
  /// `priority`.
  std::optional<sim::RequestId> take_least(std::int64_t priority, sim::Time now);

  // ---- life of a request -------------------------------------------------------------------

  void join(sim::RequestId id, const signals::View& view, sim::Time now);
  /// A request that was taken from its queue.
  struct Taken {
    sim::RequestId id;
    bool is_too_late;  ///< dropped by controlled delay, not dispatched
  };
  /// Takes the next request; unset if none may start.
  std::optional<Taken> take_next(const FairnessPolicy::MayStart& may_start, sim::Time now);
  /// A cycle of dispatch has come to the band, which is open and empty.
  void found_empty() { fairness_->found_empty(); }
  void first_token(sim::RequestId id, sim::Time now) {
    if (charging_) charge_first_token(*charging_, id, now);
  }
  void ended(sim::RequestId id, bool is_completed, sim::Time now);

  /// Removes a waiting request. Precondition: it waits.
  void withdraw(sim::RequestId id, sim::Time now);
  /// Time of the next time-out; kForever: none.
  sim::Time next_timeout() { return queues_.next_timeout(); }
  /// Removes a request that has timed out.
  std::optional<sim::RequestId> take_expired(sim::Time now);

  /// Charges the tokens that were emitted since the last charge, if tokens are charged.
  void charge_tokens(sim::Time now) {
    if (charging_ && meter_) charge_emitted(*charging_, now);
  }

 private:
  void charge_emitted(const Charging& charging, sim::Time now);
  sim::TenantId tenant_of(sim::RequestId id) const { return sim::TenantId{requests_.tenant(id)}; }
  void charge_first_token(const Charging& charging, sim::RequestId id, sim::Time now);
  void charge(sim::TenantId tenant, double amount, sim::Time now) {
    if (amount != 0) fairness_->charge(tenant, amount, now);
  }
  // The request has left its queue without being dispatched.
  sim::RequestId drop(TenantQueues::Removed removed, sim::Time now);

  const workload::RequestTable& requests_;
  std::int64_t priority_;
  std::vector<std::size_t> max_of_tenant_;
  std::optional<std::size_t> max_requests_;
  std::unique_ptr<FairnessPolicy> fairness_;
  bool chooses_requests_;
  bool drains_when_empty_;
  bool decays_with_time_;
  std::optional<Charging> charging_;  // only if the fairness policy has a cost
  TenantQueues queues_;
  ServiceMeter* meter_ = nullptr;  // only if tokens are charged
  std::vector<std::size_t> classes_;
  std::vector<std::int64_t> tokens_charged_;  // by group of requests; only those of the band
};

}  // namespace spillway::gateway
