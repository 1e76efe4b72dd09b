#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cluster/changes.h"
#include "cluster/context.h"
#include "cluster/exact_estimator.h"
#include "cluster/health.h"
#include "cluster/latency_estimates.h"
#include "fleet/fleet.h"
#include "fleet/load.h"
#include "fleet/resizer.h"
#include "gateway/pipeline.h"
#include "instance/instance.h"
#include "instance/step_loop/step_log.h"
#include "metrics/timeline.h"
#include "router/decisions.h"
#include "signals/follows.h"
#include "signals/load_changes.h"
#include "signals/scrapes.h"
#include "signals/signal_store.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"

namespace spillway::cluster {

/// All instances, which of them are ready, and their metrics.
class Fleet final : public gateway::ServiceMeter {
 public:
  /// `listener`: notified of first tokens and ends. `reference`: see instance::Stepping.
  /// `step_logs`: as in RunOptions. `legs`: null without pools.
  Fleet(Context& context, workload::RequestListener& listener, bool reference,
        std::vector<instance::StepLog>* step_logs = nullptr, instance::LegListener* legs = nullptr);

  // ---- life of a request -------------------------------------------------------------------

  /// The request has been routed: it enters its instance after its entry delay.
  void send(sim::RequestId id, router::Target target);
  /// An event of phase `ingress`. Returns the request that has entered its instance, or has failed
  /// there; unset: a place became free, and waiting requests enter.
  std::optional<sim::RequestId> enter(const sim::Event& event);
  /// The request leaves its instance and ends with `outcome`, now or at the end of the current
  /// step.
  void cancel(sim::RequestId id, workload::Outcome outcome);
  /// Evicts the request if it has not ended; in transit to an instance, when it arrives there.
  void evict(sim::RequestId id);
  /// A prompt of this many tokens is to be computed at the instance.
  void note_prompt(sim::InstanceId id, std::int64_t tokens) {
    if (latency_estimates_) [[unlikely]]
      latency_estimates_->sent(id, tokens);
  }
  /// The request no longer counts at its rank.
  void left(sim::RequestId id) {
    const sim::InstanceId instance = context_.instance_of(id);
    if (context_.states.has_ranks) at(instance).left(context_.states.rank_of(id));
    note_change(instance);
  }

  /// The request's permit was released. If it was withdrawn, requests waiting at its instance may
  /// enter.
  void released(sim::RequestId id, workload::Outcome outcome);

  // ---- events ------------------------------------------------------------------------------

  /// Events of the phases `step_start` and `step_end`.
  void start_step(std::uint32_t engine) {
    engines_[engine]->start_step(context_.now);
    note_step(engine);
  }
  void end_step(std::uint32_t engine) {
    engines_[engine]->end_step(context_.now);
    note_step(engine);
  }
  instance::Instance& at(sim::InstanceId id) { return *instances_[id.index()]; }
  /// The numbers of instances to be in service from now on: an event of phase `fleet_change` is
  /// due.
  void set_targets(const Targets& targets);
  /// Applies a new target and the autoscaler's decision, and makes due instances ready.
  /// `load`: of the gateways, with their controllers if it `reads_controllers`. True: the number of
  /// ready instances has changed, in the fleet or a pool.
  bool resize(fleet::FleetLoad load);
  /// An event of phase `fleet_change` of an instance that may fail; `continues`: as in Health.
  /// True: the number of ready instances has changed.
  bool change_health(const sim::Event& event, bool continues);
  /// Null unless instances may fail.
  Health* health() { return health_.get(); }
  const Health* health() const { return health_.get(); }
  bool reads_controllers() const { return resizers_.front().reads_reports(context_.now); }
  /// The time between two polls of the first autoscaler; 0: there is none.
  sim::Time poll_period() const { return resizers_.front().poll_period(); }
  /// Schedules the next of these, unless an earlier one is scheduled.
  void schedule_resize();

  // ---- state -------------------------------------------------------------------------------

  /// The view of a decision with the local state `local`.
  signals::View view(const signals::LocalState& local) {
    return signal_store_.view(local, context_.now);
  }
  signals::View view(signals::LocalState&& local) = delete;
  /// See signals::SignalStore.
  void set_pools(std::span<const sim::InstanceId> prefill, std::span<const sim::InstanceId> decode,
                 std::span<const sim::InstanceId> entry) {
    signal_store_.set_pools(prefill, decode, entry);
  }
  /// Requests need one of these instances; empty: any.
  void set_serving(std::vector<sim::InstanceId> instances) { serving_ = std::move(instances); }
  /// Whether such an instance is ready; until the next change of those that are.
  void set_has_workers(bool has_workers) { has_workers_ = has_workers; }
  bool has_workers() const { return has_workers_; }
  /// What a decision would see of an instance now, without being one.
  signals::InstanceSignal seen(sim::InstanceId id) { return signal_store_.seen(id, context_.now); }
  std::span<const sim::InstanceId> ready() const { return state_.ready(); }
  std::int64_t num_ready() const { return state_.num_ready(); }
  /// Whether a ready instance, or this one, serves a model of the requests (RequestTable::models);
  /// true without models.
  bool serves(std::uint16_t model) const {
    return ready_for_.empty() || !ready_for_[model].empty();
  }
  bool serves(std::uint16_t model, sim::InstanceId instance) const {
    return ready_for_.empty() ||
           std::ranges::find(ready_for_[model], instance) != ready_for_[model].end();
  }
  /// What is seen of the instances that serve the model; of all if none is ready.
  signals::View view_of_model(std::uint16_t model, const signals::View& view) const {
    if (ready_for_.empty() || !serves(model)) return view;
    return view.of(ready_for_[model]);
  }
  /// Before when the autoscaler, which has just polled, changes nothing while the system is empty,
  /// as it is now; 0: the next poll may.
  sim::Time settled_until() const {
    if (resizers_.size() > 1) return sim::Time{0};
    const fleet::Resizer& resizer = resizers_.front();
    const bool has_polled = resizer.next() == context_.now + resizer.poll_period();
    if (!has_polled || state_.next_ready() != sim::kForever) return sim::Time{0};
    return resizer.settled_until(state_);
  }
  /// Skips polls of the autoscaler, except the last of those before `until`. Returns how long they
  /// take. Precondition: `until` is at most `settled_until`.
  sim::Time skip_polls(sim::Time until);
  /// Whether an instance that requests need may become ready without a further target. `all`: the
  /// counts of the gateways. Precondition: none is.
  bool awaits_instances(const gateway::GatewayCounters& all) const {
    const auto is_settled = [&](const fleet::Resizer& resizer) {
      return resizer.is_settled(all.queued(), all.shed());
    };
    // Of separate pools, that of decode instances comes last. The other may leave it room.
    const bool may_grow =
        resizers_.back().has_room(state_) && !std::ranges::all_of(resizers_, is_settled);
    return state_.next_ready() != sim::kForever || may_grow ||
           (health_ && health_->will_recover(serving_));
  }
  std::span<const std::unique_ptr<instance::Instance>> instances() const { return instances_; }
  /// Null unless instances are scraped.
  signals::Scrapes* scrapes() { return scrapes_.get(); }
  /// When the instance notices that a client has left; kForever: never.
  sim::Time notice_delay(sim::InstanceId id) const {
    return notice_delays_.empty() ? sim::Time{0} : notice_delays_[id.index()];
  }
  /// Whether any instance notices late, or clients may withdraw what an instance has completed.
  bool notices_late() const { return !notice_delays_.empty(); }
  /// The request has left an instance with `outcome` after its client had left. If the instance has
  /// completed or lost it, it thereby counts as withdrawn there.
  void ended_in_vain(sim::RequestId id, workload::Outcome outcome);
  /// Counts of such requests, and of their tokens.
  struct InVain {
    std::int64_t requests = 0;
    std::int64_t tokens = 0;
    std::int64_t lost = 0;  ///< requests that were lost, after entry, when their clients had left
  };
  InVain in_vain(sim::InstanceId id) const {
    return in_vain_.empty() ? InVain{} : in_vain_[id.index()];
  }
  /// Cost of the instances up to `end`; unset: no group states any.
  std::optional<double> cost(sim::Time end) const;
  const std::vector<std::int64_t>& emitted(sim::Time now) override;
  /// Data-parallel ranks of each instance.
  std::vector<std::size_t> ranks() const;
  /// Adds the state of the instances, and the tokens emitted for each tenant. Precondition: there
  /// is a timeline, or policies need `tokens_by_group`, so instances count them.
  void add_to(metrics::Sample& state, std::span<metrics::TenantSample> tenants);
  /// Brings the states' `emitted` of the requests in instances up to now.
  void note_emitted(sim::Time now);
  /// When the next tokens after `now` are emitted whose event is not in the queue.
  sim::Time next_token(sim::Time now);
  /// What an instance has counted so far.
  instance::Counters counters(sim::InstanceId id);
  bool is_ready(sim::InstanceId id) const {
    return std::ranges::find(state_.ready(), id) != state_.ready().end();
  }
  /// See `Health::condition_of`.
  std::string_view condition_of(sim::InstanceId id) const {
    return health_ ? health_->condition_of(id) : "up";
  }
  /// Ends the run: advances the instances to `end`, inclusive.
  void close(sim::Time end);

 private:
  void fail(sim::RequestId id);
  void completed_in_vain(sim::RequestId id);
  void lost_in_vain(sim::RequestId id);
  std::vector<signals::SignalSource*> make_instances(workload::RequestListener& listener,
                                                     bool reference,
                                                     std::vector<instance::StepLog>* step_logs,
                                                     instance::LegListener* legs);
  std::vector<fleet::InstanceLoad> reports(std::size_t pool);
  void note_ready();
  void note_ready_by_model();
  void note_change(sim::InstanceId id) {
    if (load_changes_) load_changes_->add(id);
  }
  void note_step(std::uint32_t engine) {
    if (load_changes_ && follows_ == signals::Follows::steps) {
      load_changes_->add(instance_of_engine_[engine]);
    }
  }
  sim::Time next_resize() const;
  std::int64_t most_instances(std::size_t pool) const;

  Context& context_;
  workload::RequestListener& listener_;
  fleet::FleetState state_;
  std::vector<fleet::Resizer> resizers_;  // of the pools of `state_`
  sim::Time next_event_ = sim::kForever;  // of phase `fleet_change`
  std::unique_ptr<signals::Scrapes> scrapes_;
  std::vector<std::unique_ptr<instance::Instance>> instances_;
  std::vector<instance::Engine*> engines_;
  std::vector<sim::InstanceId> instance_of_engine_;
  signals::Follows follows_;
  std::optional<signals::LoadChanges> load_changes_;  // unless the router follows nothing
  signals::SignalStore signal_store_;
  std::optional<ExactEstimator> exact_estimator_;        // only if a policy reads it
  std::unique_ptr<LatencyEstimates> latency_estimates_;  // null unless an autoscaler reads them
  std::vector<sim::RequestId> pending_evictions_;        // of requests in transit to instances
  std::vector<std::int64_t> emitted_;                    // by group of requests
  std::vector<std::vector<sim::InstanceId>> ready_for_;  // by model; empty without models
  // By instance; empty unless `notices_late`.
  std::vector<sim::Time> notice_delays_;
  std::vector<InVain> in_vain_;
  std::vector<sim::InstanceId> serving_;
  bool has_workers_ = false;
  std::unique_ptr<Health> health_;  // null unless instances may fail
};

}  // namespace spillway::cluster
