#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cluster/context.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/link.h"
#include "cluster/load_events.h"
#include "cluster/migrations.h"
#include "cluster/pool_loads.h"
#include "cluster/prefill_retries.h"
#include "cluster/submissions.h"
#include "cluster/transfer_domains.h"
#include "instance/instance.h"
#include "metrics/ledger.h"
#include "metrics/timeline.h"
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
  /// `run`: notified of first tokens and released permits; `migrations`: null unless requests
  /// migrate, and notified in its place.
  Pools(Context& context, workload::RequestListener& run, Migrations* migrations);
  /// To be called before the run starts.
  void connect(Fleet& fleet, Gateways& gateways, LoadEvents& load_events, Submissions& submissions);

  // ---- events ------------------------------------------------------------------------------

  /// Whether the request's event of phase `routing` is about its decode leg.
  bool is_in_handoff(sim::RequestId id) const {
    return id.index() < jobs_.size() && jobs_[id.index()].has_prefilled;
  }
  /// Such an event.
  void route_decode(sim::RequestId id);
  /// A dispatched request. Returns why it is rejected; unset: it is not.
  [[nodiscard]] std::optional<workload::ReasonCode> route(sim::RequestId id);
  /// A submission with `prefill_only`, whose lengths are known now, is handed off.
  void hand_off(sim::RequestId id);
  /// An event of phase `leg_entry`.
  void enter(const sim::Event& event);
  /// An event of phase `transfer_end`.
  void end_transfers(const sim::Event& event);
  /// The request, which is in transit, ends with `outcome`: now, or as soon as it arrives.
  void withdraw(sim::RequestId id, workload::Outcome outcome);
  /// Whether the request, which its client withdraws in an instance, stays until its prompt is
  /// read.
  [[nodiscard]] bool reads_on(sim::RequestId id);

  // ---- of the instances --------------------------------------------------------------------

  void first_token(sim::RequestId id) override;
  void finished(sim::RequestId id) override;
  void released(sim::RequestId id) override { run_.released(id); }
  void prefill_ended(sim::RequestId id) override;
  void blocks_taken(sim::RequestId id, std::int64_t missing) override;
  void seated(sim::RequestId id) override;
  void wasted(sim::RequestId id, std::int64_t tokens) override;
  bool tries_again(sim::RequestId id) override;
  void lost(sim::RequestId id, instance::Leg leg) override;
  void held_leg_enters(sim::RequestId id) override;
  void held_leg_is_lost(sim::RequestId id) override;
  /// Other instances are ready than before.
  void note_ready();

  /// The state of both pools now, as it is.
  metrics::PoolsSample sample() const;
  metrics::LegCounts counts() const;
  /// Throws LivelockError if requests wait for each other's memory, so that none of them will move:
  /// not where some may be withdrawn. Precondition: no request is to come.
  void check_progress();
  /// The same, of requests that preempt themselves without end; to be called now and then.
  void check_preemptions();
  /// Throws InvariantError unless what the legs hold in the instances, and the transfers, are those
  /// of the requests in the pools.
  void check();

 private:
  struct Job {
    sim::InstanceId prefill;
    sim::InstanceId decode;
    std::uint32_t prefill_rank = 0;
    std::uint32_t decode_rank = 0;
    instance::Leg next = instance::Leg::whole;   // the leg that is on its way to its instance
    std::optional<workload::Outcome> leaves_as;  // as soon as it arrives
    std::int32_t on_the_way = 0;                 // events that carry it to its next stage
    std::int64_t missing_blocks = 0;
    std::int64_t booked_tokens = 0;  // in the prefill pool
    std::int64_t retries = 0;        // of its prefill leg
    bool in_prefill = false;         // booked in the prefill pool
    bool in_decode = false;          // booked in the decode pool
    bool is_remote = false;          // its prompt is computed for another instance
    bool is_prefilling = false;      // in the prefill instance
    bool has_prefilled = false;      // its decode leg is about to be routed
    bool is_unread = false;          // its prompt is held in the prefill instance
    bool has_decode_leg = false;     // which waits for its prompt in the decode instance
    bool is_receiving = false;       // its blocks are taken there
    bool is_moving = false;
    bool is_held = false;             // in front of an instance that is not up
    bool is_kept = false;             // by its prefill instance until it is handed off
    bool is_unplanned = false;        // the same, and no plan says when and where
    bool is_waiting = false;          // to be sent to its prefill instance again
    bool is_lost = false;             // leaves its prefill instance, as the other one has failed
    bool is_answered = false;         // by the prefill instance, whose token is the only one
    bool leaves_when_read = false;    // its client has withdrawn it
    std::int32_t lost_instance = -1;  // the first one that failed with a leg of it

    bool moving_is_possible() const { return !is_moving || (is_unread && is_receiving); }
  };

  Job& job_of(sim::RequestId id) { return jobs_[id.index()]; }
  // Tokens of its prompt, with the output of instances that it has lost.
  std::int64_t prompt_of(sim::RequestId id) const {
    return std::int64_t{context_.requests.input_tokens(id)} +
           (context_.states.resumes ? context_.states.resumptions[id.index()].emitted : 0);
  }
  // The ready instances of a pool among which a request is routed: without the one that it lost,
  // and near the one that was chosen first.
  std::span<const sim::InstanceId> choices(sim::RequestId id,
                                           const std::vector<sim::InstanceId>& ready,
                                           std::optional<sim::InstanceId> first = {});
  GatewayReplica& gateway_of(sim::RequestId id) { return gateways_->of(id); }
  instance::LegEngine& prefill_engine(const Job& job) const;
  instance::LegEngine& decode_engine(const Job& job) const;
  // Where the request is from now on.
  void move_to(sim::RequestId id, sim::InstanceId instance, std::uint32_t rank);
  // The request counts at this rank for the time of the call.
  void at_rank(sim::RequestId id, std::uint32_t rank, const auto& call);
  [[nodiscard]] std::optional<workload::ReasonCode> route_local_or_remote(sim::RequestId id,
                                                                          Job& job);
  // The same of a request that states its instance.
  [[nodiscard]] std::optional<workload::ReasonCode> route_to_only(sim::RequestId id, Job& job,
                                                                  sim::InstanceId instance);
  // Unset: the instance is not ready.
  std::optional<router::Target> pick_only(sim::RequestId id, sim::InstanceId instance);
  std::optional<router::Target> pick_only_prefill(sim::RequestId id, sim::InstanceId instance);
  void keep(sim::RequestId id);
  // The decode leg is about to be routed.
  void begin_handoff(sim::RequestId id);
  // The other instance: unset if it is not chosen yet.
  std::optional<router::Target> pick_prefill(sim::RequestId id,
                                             std::optional<sim::InstanceId> decode);
  // Unset: `why` is set.
  std::optional<router::Target> pick_decode(sim::RequestId id,
                                            std::optional<sim::InstanceId> prefill,
                                            workload::ReasonCode& why);
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
  bool follows_step_start(sim::RequestId id, const Job& job) const;
  // The leg that was on its way is there.
  void enter_leg(sim::RequestId id);
  sim::InstanceId destination(const Job& job) const {
    return job.next == instance::Leg::prefill || job.is_answered ? job.prefill : job.decode;
  }
  // A wait for another try is over.
  void send_again();
  // An instance has failed with what it held of the request, which ends as soon as it may.
  void end_lost(sim::RequestId id, sim::InstanceId instance);
  // A request in transit has arrived, and ends.
  void leave(sim::RequestId id, workload::Outcome outcome);
  // A request that has ended with `outcome` in an instance, which failed.
  void count_loss(sim::RequestId id, const Job& job);
  // Whether an instance is to fail, return or be missed, or a leg to be sent again.
  bool expects_changes() const;
  void begin_transfer(sim::RequestId id);
  void watch_link();
  void delay_steps();
  void end(sim::RequestId id, workload::Outcome outcome);
  void leave_if_read(sim::RequestId id);
  void report_deadlock() const;  // if there is one
  LegColumns* columns_of(sim::RequestId id);

  static constexpr std::uint32_t kNothing = 0xFFFFFFFF;  // of the link has ended

  Context& context_;
  workload::RequestListener& run_;
  Migrations* migrations_;  // null unless requests migrate
  Fleet* fleet_ = nullptr;
  Gateways* gateways_ = nullptr;
  LoadEvents* load_events_ = nullptr;
  Submissions* submissions_ = nullptr;
  bool is_prefill_first_;
  bool sends_decode_first_;
  bool ends_at_first_token_;
  bool reads_on_;
  TransferDomains domains_;
  bool rejects_busy_;  // as Dynamo does, whenever an instance is chosen
  bool may_be_withdrawn_;
  std::vector<std::unique_ptr<router::Decider>> deciders_;  // by gateway
  bool reads_prefixes_;
  bool reads_prefill_cache_;
  std::unique_ptr<PoolLoads> loads_;      // null unless the decider reads them
  std::vector<sim::InstanceId> prefill_;  // the pools
  std::vector<sim::InstanceId> decode_;
  std::vector<sim::InstanceId> ready_prefill_;  // of them, to the gateway
  std::vector<sim::InstanceId> ready_decode_;   // while none is, the last ready ones
  std::vector<sim::InstanceId> choices_;        // kept to reuse its memory
  bool can_decode_ = true;                      // an instance of the decode pool is ready
  bool begins_with_prefill_ = false;
  double bytes_per_block_;
  sim::Time routing_latency_;
  PrefillRetries retries_;
  Link link_;
  std::uint32_t link_state_ = 0;  // an event of another state of the link is outdated
  std::vector<Job> jobs_;         // by request
  metrics::LegCounts counts_;
  metrics::LegLosses losses_;  // none unless instances may fail
  std::size_t checks_ = 0;
  instance::Counters last_totals_;  // when preemptions were last checked
};

}  // namespace spillway::cluster
