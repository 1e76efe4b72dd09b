#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gateway/admission_chain.h"
#include "gateway/charging.h"
#include "gateway/config.h"
#include "gateway/controller/guard.h"
#include "gateway/eviction.h"
#include "gateway/fairness/fairness.h"
#include "gateway/limit/limit.h"
#include "gateway/queue/tenant_queues.h"
#include "gateway/usage_limit/usage_limit.h"
#include "signals/sensor.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/journal.h"
#include "workload/outcome.h"
#include "workload/request_table.h"
#include "workload/tenants.h"

namespace spillway::gateway {

/// What went through a gateway: counted as it happens, independently of the requests' outcomes.
struct Books {
  std::int64_t attempts = 0;
  std::int64_t admitted = 0;
  std::int64_t rejected = 0;
  std::int64_t expired = 0;    ///< left their queues after a time-out or too long a wait
  std::int64_t evicted = 0;    ///< left their queues to make room
  std::int64_t withdrawn = 0;  ///< left their queues because their clients did not wait
  std::int64_t reclaimed = 0;  ///< dispatched, and ended by an eviction
  std::int64_t dispatched = 0;
  std::int64_t ended = 0;  ///< permits returned

  Books& operator+=(const Books& other);
  std::int64_t in_flight() const { return dispatched - ended; }
  std::int64_t queued() const { return admitted - expired - evicted - withdrawn - dispatched; }
  std::int64_t shed() const { return rejected + expired + evicted; }
  /// Between the gateway's door and the end, wherever that is.
  std::int64_t present() const { return attempts - admitted - rejected + queued() + in_flight(); }
};

/// Requests that a call has let out of the queues, or that are to be withdrawn. Valid until the
/// next call.
struct Departures {
  std::vector<sim::RequestId> dispatched;  ///< to be routed, in this order
  std::vector<sim::RequestId> dropped;  ///< left a queue undispatched: expired, evicted, withdrawn
  std::vector<sim::RequestId> evicted;  ///< in flight, to be withdrawn from their instances

  void clear() {
    dispatched.clear();
    dropped.clear();
    evicted.clear();
  }
};

/// The answer to a request that asks for admission.
struct Admitted {
  bool admitted;  ///< it has joined its tenant's queue, which is then to be drained
  const Departures& departures;
};

/// What one tick of a controller did.
struct ControlRecord {
  sim::Time at;
  std::uint16_t replica = 0;
  ControlAction action = ControlAction::hold;
  double value = 0;  ///< of the sensor; NaN: too few samples
  std::int64_t samples = 0;
  double setting = 0;  ///< of the limit, after the tick
  double permits = 0;  ///< likewise; NaN: not counted in requests
  std::int64_t in_flight = 0;
};

/// The pipeline: admission → tenant queue → fairness and limit → dispatch, and the control of the
/// limit. Keeps the books; policies cannot forget to count. What other stages know of a request it
/// is given, and what is to happen to one it returns.
class Pipeline {
 public:
  Pipeline(const Gateway& config, std::uint16_t replica, const workload::RequestTable& requests,
           workload::Journal& journal, std::size_t num_instances, std::uint64_t seed);

  // ---- the way of a request ----------------------------------------------------------------

  /// The request has reached the gateway.
  void arrive() { ++books_.attempts; }
  /// Decides on admission. `retries`: how often its client has asked before.
  [[nodiscard]] Admitted admit(sim::RequestId id, std::uint64_t retries, const signals::View& view,
                               sim::Time now);
  /// Dispatches while the limits permit, or one request. `view`: null unless its policies need
  /// `fleet_signals`.
  [[nodiscard]] const Departures& drain(const signals::View* view, sim::Time now);
  /// `entered_engine`: when it joined the queue of the instance's engine. True if the queues are to
  /// be drained.
  bool first_token(sim::RequestId id, sim::InstanceId instance, sim::Time entered_engine,
                   sim::Time now);
  /// The request has left the system: its permit returns. `outcome`: as the stage says that ended
  /// it. True if the queues are to be drained.
  bool release(sim::RequestId id, workload::Outcome outcome, sim::Time now);

  /// Its client no longer waits for it. Precondition: it waits in a queue.
  [[nodiscard]] const Departures& withdraw(sim::RequestId id, workload::ReasonCode reason,
                                           sim::Time now);

  // ---- what happens by itself --------------------------------------------------------------

  /// When `expire` is to be called next; kForever: never.
  sim::Time next_timeout();
  /// Those whose wait is over leave their queues.
  [[nodiscard]] const Departures& expire(sim::Time now);
  /// Reads the sensor and moves the limit. `view`: as in `drain`.
  void tick(const signals::View* view, sim::Time now);
  /// So many instances are ready, as far as the gateway knows.
  void set_workers(std::int64_t workers);

  // ---- what it is like ---------------------------------------------------------------------

  const Books& books() const { return books_; }
  /// By tenant.
  std::int64_t queued(sim::TenantId tenant) const;
  /// Likewise, since the start.
  std::int64_t dispatched(sim::TenantId tenant) const {
    return dispatched_by_tenant_[tenant.index()];
  }
  /// Permits in all that the tightest limit gives out; NaN: it does not count requests.
  double permits() const;
  const std::vector<ControlRecord>& control_log() const { return control_log_; }
  /// The highest number of requests in flight so far.
  std::int64_t peak_in_flight() const { return peak_in_flight_; }
  /// Of each limit, whether it has kept any request waiting so far.
  const std::vector<char>& limits_that_held() const { return has_held_; }

  /// Whether a request may wait for the one before it rather than for a permit.
  bool heads_block() const { return heads_block_; }
  /// Whether those that wait do so until the gateway hears of something, whatever the clock says.
  bool is_stuck(const signals::View* view, sim::Time now) const;
  /// Tokens that requests have emitted are read when queues are drained, of all at once.
  class ServiceMeter {
   public:
    virtual ~ServiceMeter() = default;
    /// Tokens emitted up to `now`, by group of requests; valid until the next call.
    virtual const std::vector<std::int64_t>& emitted(sim::Time now) = 0;
  };
  void set_meter(ServiceMeter& meter) { meter_ = &meter; }

 private:
  struct BandState {
    std::int64_t priority;
    double ceiling;
    std::optional<std::int64_t> max_of_tenant;
    std::optional<std::int64_t> max_requests;
    std::unique_ptr<FairnessPolicy> fairness;
    std::optional<Charging> charging;  // where fairness has a cost
    TenantQueues queues;
    std::vector<std::size_t> classes;          // whose requests join it
    std::vector<std::int64_t> tokens_charged;  // by group of requests; those of the band count
  };
  /// Asks the limits on behalf of a band.
  class Permission;

  BandState& band_of(const workload::SloClass& slo_class);
  BandState& band_of(sim::RequestId id) { return band_of(requests_.class_of(id)); }
  bool has_room(BandState& band, sim::RequestId id, sim::Time now);
  bool displace(std::int64_t priority, sim::Time now);
  void make_usage_limit(const UsageLimit& config);
  void set_ceilings(const signals::View* view, sim::Time now);
  double saturation(const signals::View* view, sim::Time now) const;
  // Of a band that has been found closed, whether by saturation or not.
  void reclaim(const BandState& band, const signals::View* view, sim::Time now);
  bool dispatch_from(BandState& band, const Permission& permission);
  static void charge(BandState& band, sim::TenantId tenant, double amount, sim::Time now);
  void charge_tokens(BandState& band, sim::Time now);
  void lose(BandState& band, TenantQueues::Removed removed, workload::Outcome outcome,
            workload::ReasonCode reason, sim::Time now);
  // A measurement of `source`; it is of no use unless the sensor goes by that.
  void measure(signals::SensorSource source, sim::RequestId id, sim::Time value, sim::Time now);

  const workload::RequestTable& requests_;
  workload::Journal& journal_;
  std::uint64_t seed_;
  std::uint16_t replica_;
  AdmissionChain chain_;
  std::vector<BandState> bands_;  // highest priority first
  std::vector<std::unique_ptr<LimitPolicy>> limits_;
  std::vector<char> has_held_;  // by limit
  std::unique_ptr<UsageLimitPolicy> usage_limit_;
  std::vector<double> ceilings_;  // by band
  Evictor evictor_;
  std::optional<std::int64_t> max_queued_;
  bool sheds_;
  bool one_per_attempt_;
  bool heads_block_;
  bool frees_at_first_token_ = false;
  bool reads_fleet_at_ticks_;
  signals::SensorSource source_;
  bool samples_refusals_;
  signals::SensorState sensor_;
  // Where a limit is under control:
  std::unique_ptr<Governor> governor_;
  LimitPolicy* controlled_ = nullptr;
  Books books_;
  std::int64_t peak_in_flight_ = 0;
  std::int64_t max_in_flight_ = 0;  // since the last tick
  std::int64_t shed_ = 0;           // likewise
  // Of the fleet, up to the last tick that saw any lookup, and the rate since the one before.
  std::int64_t prefix_hits_ = 0;
  std::int64_t prefix_lookups_ = 0;
  double hit_rate_ = 0;
  std::vector<std::int64_t> dispatched_by_tenant_;
  std::vector<ControlRecord> control_log_;
  Departures departures_;  // of the last call, kept for its memory
  ServiceMeter* meter_ = nullptr;
};

}  // namespace spillway::gateway
