#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/admission/policies.h"
#include "gateway/charging.h"
#include "gateway/controller/guard.h"
#include "gateway/controller/policies.h"
#include "gateway/eviction.h"
#include "gateway/fairness/policies.h"
#include "gateway/limit/policies.h"
#include "gateway/queue/queue.h"
#include "gateway/queue/tenant_queues.h"
#include "gateway/usage_limit/policies.h"
#include "signals/sensor.h"
#include "signals/view.h"
#include "sim/event_queue.h"
#include "sim/schema/enum.h"
#include "sim/schema/field.h"
#include "workload/journal.h"
#include "workload/outcome.h"
#include "workload/request_table.h"

namespace spillway::gateway {

/// The queues of one range of priorities.
struct Band {
  std::int64_t priority = -1000;
  double ceiling = 1;
  std::optional<std::int64_t> max_requests;
  Fairness fairness = GlobalFifo{};
  Queue queue;

  static constexpr std::string_view type_name = "Band";
  static constexpr std::string_view doc =
      "The queues of one range of priorities. Bands are served strictly from the highest priority "
      "down.";
  static void fields(auto field) {
    field("priority", &Band::priority,
          "A request joins the highest band whose priority its class reaches; the lowest band "
          "takes the rest.")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("ceiling", &Band::ceiling,
          "Saturation of the fleet from which the band waits, where a saturation limit is in "
          "force and the usage limit is static.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0.5, 1);
    field("max_requests", &Band::max_requests,
          "Most requests of all tenants together that wait in the band; 0: every request is "
          "refused, since each passes through the queue; absent: any number.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 5000);
    field("fairness", &Band::fairness, "Which tenant goes next within the band.");
    field("queue", &Band::queue, "Its tenants' queues: bounds, time-outs, order within.");
  }
};

/// How requests are shared out among the replicas of a gateway.
enum class Split : std::uint8_t { round_robin, tenant_hash, random };

/// How many requests a drain of the queues may let go.
enum class Dispatch : std::uint8_t { all, one_per_attempt };

/// If, when and for whom a request is let through.
struct Gateway {
  std::vector<Admission> admission{AlwaysAdmit{}};
  double admission_latency_s = 0;
  std::vector<Band> bands{Band{}};
  std::optional<std::int64_t> max_queued;
  bool queue_shedding = false;
  double drain_latency_s = 0;
  Dispatch dispatch = Dispatch::all;
  double attempt_period_s = 0.001;
  std::vector<Limit> limit{Unlimited{}};
  UsageLimit usage_limit = StaticCeilings{};
  Eviction eviction;
  Controller controller = StaticLimit{};
  Guard guard;
  signals::Sensor sensor;
  double routing_latency_s = 0;
  std::int64_t replicas = 1;
  Split split = Split::round_robin;

  static constexpr std::string_view type_name = "Gateway";
  static constexpr std::string_view doc =
      "If, when and for whom a request is let through: admission, tenant queues, fairness, "
      "concurrency limit and what controls it.";
  static void fields(auto field) {
    const auto latency = sim::between(0, sim::kLongestSpan_s);
    field("admission", &Gateway::admission,
          "Chain of admission policies: the first rejection wins. A single policy is a chain "
          "of one.");
    field("admission_latency_s", &Gateway::admission_latency_s,
          "Time from arrival to the admission decision.")
        .unit("s")
        .range(latency);
    field("bands", &Gateway::bands, "Priority bands of the tenant queues; one by default.");
    field("max_queued", &Gateway::max_queued,
          "Most requests that wait in all bands together; 0: every request is refused; absent: "
          "any number.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 5000);
    field("queue_shedding", &Gateway::queue_shedding,
          "Whether a request that meets max_queued takes the place of the least important "
          "sheddable one (priority < 0), the newest of equals, if it is more important itself.");
    field("drain_latency_s", &Gateway::drain_latency_s,
          "Time until whoever serves the queues notices that a request has joined or a permit "
          "has returned. With 0 it does before the next arrival of the same instant.")
        .unit("s")
        .range(latency);
    field("dispatch", &Gateway::dispatch,
          "How many requests go at once. all: as many as the limits permit, when one joins and "
          "when a permit returns; one_per_attempt: one when a request joins, and one every "
          "attempt_period_s while any waits, none when a permit returns (llm-d's endpoint "
          "picker), so that no more than 1 / attempt_period_s go beyond what arrives.");
    field("attempt_period_s", &Gateway::attempt_period_s,
          "Time between two attempts to dispatch to which nothing but the clock gives rise: "
          "those of one_per_attempt, and those for which requests wait that a saturation limit "
          "holds.")
        .unit("s")
        .range(sim::between(1e-5, sim::kLongestSpan_s))
        .log_search(1e-4, 0.1);
    field("limit", &Gateway::limit,
          "How many requests may be in flight. Several limits must all agree; a single one is a "
          "list of one.");
    field("usage_limit", &Gateway::usage_limit,
          "From which saturation on each band waits, where a saturation limit is in force; the "
          "highest one where there are several.");
    field("eviction", &Gateway::eviction,
          "Whether requests in flight give way to those that a saturation limit holds.");
    field("controller", &Gateway::controller,
          "What moves the limit: the first of the list that can be moved.");
    field("guard", &Gateway::guard, "How far the controller may move it.");
    field("sensor", &Gateway::sensor, "What the controller goes by.");
    field("routing_latency_s", &Gateway::routing_latency_s,
          "Time from dispatch to the routing decision.")
        .unit("s")
        .range(latency);
    field("replicas", &Gateway::replicas,
          "Gateways side by side before the same fleet, each with queues, limits, controller "
          "and records of its own.")
        .unit("gateways")
        .range(sim::between(1, 1000));
    field("split", &Gateway::split,
          "Which replica gets a request: round_robin in order of arrival, tenant_hash or "
          "random.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

/// The closed set of reasons for which admission rejects.
inline constexpr auto kAdmissionReasons = workload::concat_reasons(std::type_identity<Admission>{});

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
/// limit. Keeps the books; policies cannot forget to count.
class Pipeline {
 public:
  Pipeline(const Gateway& config, std::uint16_t replica, const workload::RequestTable& requests,
           workload::Journal& journal, sim::EventQueue& events, std::size_t num_instances,
           std::uint64_t seed);

  // ---- the way of a request ----------------------------------------------------------------

  /// The request has reached the gateway.
  void arrive() { ++books_.attempts; }
  /// Decides on admission. An admitted request joins its tenant's queue, which is then to be
  /// drained; false: it was rejected.
  bool admit(sim::RequestId id, const signals::View& view, sim::Time now);
  /// Dispatches while the limits permit, or one request; routing is due after the routing latency.
  /// `view`: null unless `reads_signals`.
  void drain(const signals::View* view, sim::Time now);
  /// True if the queues are to be drained.
  bool first_token(sim::RequestId id, sim::Time now);
  /// The request has left the system: its permit returns. True if the queues are to be drained.
  bool release(sim::RequestId id, sim::Time now);

  /// Its client does not wait for it any longer. Precondition: it waits in a queue.
  void withdraw(sim::RequestId id, workload::ReasonCode reason, sim::Time now);

  // ---- what happens by itself --------------------------------------------------------------

  /// When `expire` is to be called next; kForever: never.
  sim::Time next_timeout();
  /// Those whose wait is over leave their queues.
  void expire(sim::Time now);
  /// Requests that have left a queue undispatched since `forget_lost`.
  const std::vector<sim::RequestId>& lost() const { return lost_; }
  void forget_lost() { lost_.clear(); }
  /// Requests in flight that are to be withdrawn, since `forget_victims`.
  const std::vector<sim::RequestId>& victims() const { return victims_; }
  void forget_victims() { victims_.clear(); }
  /// Reads the sensor and moves the limit. `view`: null unless `reads_signals`.
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

  /// Whether draining and ticks look at what instances report.
  bool reads_signals() const { return reads_signals_; }
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
  struct Chain {
    std::unique_ptr<AdmissionPolicy> policy;
    std::size_t first_reason;
  };
  struct BandState {
    std::int64_t priority;
    double ceiling;
    std::optional<std::int64_t> max_of_tenant;
    std::optional<std::int64_t> max_requests;
    std::unique_ptr<FairnessPolicy> fairness;
    std::optional<Charging> charging;  // where fairness has a cost
    TenantQueues queues;
    bool drains_when_empty;
    std::vector<std::size_t> classes;          // whose requests join it
    bool forgets;                              // by the clock, so that charges must not wait
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
  sim::EventQueue& events_;
  std::uint64_t seed_;
  std::uint16_t replica_;
  sim::Time routing_latency_;
  std::vector<Chain> chain_;
  std::vector<AdmissionPolicy*> observers_;  // those of the chain that follow their requests
  std::vector<BandState> bands_;             // highest priority first
  std::vector<std::unique_ptr<LimitPolicy>> limits_;
  std::vector<char> has_held_;  // by limit
  std::unique_ptr<UsageLimitPolicy> usage_limit_;
  std::vector<double> ceilings_;  // by band
  Evictor evictor_;
  std::optional<std::int64_t> max_queued_;
  bool sheds_;
  bool one_per_attempt_;
  bool reads_signals_;
  bool heads_block_;
  bool frees_at_first_token_;
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
  std::vector<sim::RequestId> lost_;
  std::vector<sim::RequestId> victims_;
  ServiceMeter* meter_ = nullptr;
};

/// Whether the gateway wants to know of first tokens.
bool reads_first_tokens(const Gateway& config);
/// Whether some cost or admission policy goes by the gateway's own record of sent prefixes.
bool reads_prefix_index(const Gateway& config);
/// Whether some policy reads the gateway's own record of what awaits its first token.
bool reads_outstanding(const Gateway& config);
/// Whether some policy reads the exact estimate of a first token.
bool reads_exact_estimate(const Gateway& config);
/// Whether some policy reads which instance the router would choose.
bool reads_next_choice(const Gateway& config);
/// Whether some limit follows what instances report.
bool reads_saturation(const Gateway& config);
/// Whether admission goes by which workers are busy.
bool reads_busy(const Gateway& config);
/// Whether a request may wait too long.
bool has_timeouts(const Gateway& config);
/// Whether some tenant is charged tokens as they are generated.
bool meters_tokens(const Gateway& config);
/// Whether the limit is under control.
inline bool is_controlled(const Gateway& config) {
  return !std::holds_alternative<StaticLimit>(config.controller);
}

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Split> {
  static constexpr std::array<std::string_view, 3> names{"round_robin", "tenant_hash", "random"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::Dispatch> {
  static constexpr std::array<std::string_view, 2> names{"all", "one_per_attempt"};
};
