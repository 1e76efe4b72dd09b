#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/context.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/link.h"
#include "cluster/load_events.h"
#include "cluster/pool_loads.h"
#include "instance/instance.h"
#include "metrics/ledger.h"
#include "router/deciders/decider.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_states.h"

namespace spillway::cluster {

/// The part of a run that serves requests in two pools: which legs they have, where these are sent,
/// and the transfers between them. Like the run, it passes what an actor reports to others. It is
/// made only if there are pools.
///
/// A leg is booked at the router of its pool from the choice of its instance to its end.
class Pools final : public workload::RequestListener, public instance::LegListener {
 public:
  /// `run`: notified of first tokens and released permits.
  Pools(Context& context, workload::RequestListener& run);
  /// To be called before the run starts.
  void connect(Fleet& fleet, Gateways& gateways, LoadEvents& load_events);

  // ---- events ------------------------------------------------------------------------------

  /// Whether the request's event of phase `routing` is about its decode leg.
  bool is_in_handoff(sim::RequestId id) const {
    return id.index() < jobs_.size() && jobs_[id.index()].has_prefilled;
  }
  /// Such an event.
  void route_decode(sim::RequestId id);
  /// A dispatched request. Returns why it is rejected; unset: it is not.
  [[nodiscard]] std::optional<workload::ReasonCode> route(sim::RequestId id);
  /// An event of phase `leg_entry`.
  void enter(const sim::Event& event);
  /// An event of phase `transfer_end`.
  void end_transfers(const sim::Event& event);
  /// The request, which is in transit, ends with `outcome`: now, or as soon as it arrives.
  void withdraw(sim::RequestId id, workload::Outcome outcome);

  // ---- of the instances --------------------------------------------------------------------

  void first_token(sim::RequestId id) override { run_.first_token(id); }
  void finished(sim::RequestId id) override;
  void released(sim::RequestId id) override { run_.released(id); }
  void prefill_ended(sim::RequestId id) override;
  void blocks_taken(sim::RequestId id, std::int64_t missing) override;
  void seated(sim::RequestId id) override;
  void wasted(sim::RequestId id, std::int64_t tokens) override;

  metrics::LegCounts counts() const;
  /// Throws LivelockError if requests wait for each other's memory, so that none of them will move:
  /// not where some may be withdrawn. Precondition: no request is to come.
  void check_progress();
  /// The same, of requests that preempt themselves without end; to be called now and then.
  void check_preemptions();

 private:
  struct Job {
    sim::InstanceId prefill;
    sim::InstanceId decode;
    instance::Leg next = instance::Leg::whole;   // the leg that is on its way to its instance
    std::optional<workload::Outcome> leaves_as;  // as soon as it arrives
    std::int32_t on_the_way = 0;                 // events that carry it to its next stage
    std::int64_t missing_blocks = 0;
    std::int64_t booked_tokens = 0;  // in the prefill pool
    bool in_prefill = false;         // booked in the prefill pool
    bool in_decode = false;          // booked in the decode pool
    bool is_remote = false;          // its prompt is computed for another instance
    bool is_prefilling = false;      // in the prefill instance
    bool has_prefilled = false;      // its decode leg is about to be routed
    bool is_unread = false;          // its prompt is held in the prefill instance
    bool has_decode_leg = false;     // which waits for its prompt in the decode instance
    bool is_moving = false;
  };

  Job& job_of(sim::RequestId id) { return jobs_[id.index()]; }
  GatewayReplica& gateway_of(sim::RequestId id) { return gateways_->of(id); }
  [[nodiscard]] std::optional<workload::ReasonCode> route_local_or_remote(sim::RequestId id,
                                                                          Job& job);
  std::optional<router::Target> pick_prefill(sim::RequestId id);
  // Unset: `why` is set.
  std::optional<router::Target> pick_decode(sim::RequestId id, workload::ReasonCode& why);
  void continue_there(sim::RequestId id);
  bool is_local(sim::RequestId id, std::optional<sim::InstanceId> decode);
  // Adds what the routers of both pools would choose, and its load.
  void look_ahead(sim::RequestId id, std::optional<sim::InstanceId> decode,
                  router::LegsQuestion& question);
  std::int64_t sent_tokens(sim::RequestId id, sim::InstanceId to, const signals::LocalState& state);
  void book_prefill(sim::RequestId id, const router::Target& target);
  void book_decode(sim::RequestId id, const router::Target& target);
  void unbook_prefill(sim::RequestId id, Job& job, bool is_completed);
  void unbook_decode(sim::RequestId id, Job& job);
  void send(sim::RequestId id, instance::Leg leg);
  void begin_transfer(sim::RequestId id);
  void watch_link();
  void delay_steps();
  void end(sim::RequestId id, workload::Outcome outcome);
  void report_deadlock() const;  // if there is one
  LegColumns* columns_of(sim::RequestId id);

  static constexpr std::uint32_t kNothing = 0xFFFFFFFF;  // of the link has ended

  Context& context_;
  workload::RequestListener& run_;
  Fleet* fleet_ = nullptr;
  Gateways* gateways_ = nullptr;
  LoadEvents* load_events_ = nullptr;
  bool is_prefill_first_;
  bool sends_decode_first_;
  bool rejects_busy_;  // as Dynamo does, whenever an instance is chosen
  bool may_be_withdrawn_;
  std::unique_ptr<const router::Decider> decider_;
  bool reads_prefixes_;
  std::unique_ptr<PoolLoads> loads_;      // null unless the decider reads them
  std::vector<sim::InstanceId> prefill_;  // the pools
  std::vector<sim::InstanceId> decode_;
  double bytes_per_block_;
  sim::Time routing_latency_;
  Link link_;
  std::uint32_t link_state_ = 0;  // an event of another state of the link is outdated
  std::vector<Job> jobs_;         // by request
  metrics::LegCounts counts_;
  instance::Counters last_totals_;  // when preemptions were last checked
};

}  // namespace spillway::cluster
