#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cluster/context.h"
#include "cluster/exact_estimator.h"
#include "fleet/fleet.h"
#include "fleet/resizer.h"
#include "gateway/pipeline.h"
#include "instance/instance.h"
#include "metrics/timeline.h"
#include "router/decisions.h"
#include "signals/scrapes.h"
#include "signals/signal_store.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"

namespace spillway::cluster {

/// All instances, which of them are ready, and what they report of themselves.
class Fleet final : public gateway::ServiceMeter {
 public:
  /// `listener`: notified of first tokens and ends. `reference`: see instance::Stepping.
  Fleet(Context& context, workload::RequestListener& listener, bool reference);

  // ---- the way of a request ----------------------------------------------------------------

  /// It has been routed: it enters its instance after its entry delay.
  void send(sim::RequestId id, router::Target target);
  /// An event of phase `ingress`. The request that has entered its instance; unset: a place became
  /// free, and those that wait for one enter.
  std::optional<sim::RequestId> enter(const sim::Event& event);
  /// It leaves its instance and ends with `outcome`, at once or with the step under way.
  void cancel(sim::RequestId id, workload::Outcome outcome);
  /// It is evicted, where it has not ended yet; on its way to an instance, as it gets there.
  void evict(sim::RequestId id);
  /// It does not count at its rank any longer.
  void left(sim::RequestId id) { at(context_.instance_of(id)).left(context_.states.rank_of(id)); }

  /// Its permit has returned. Where it was withdrawn, those that wait at its instance may enter.
  void released(sim::RequestId id, workload::Outcome outcome);

  // ---- events ------------------------------------------------------------------------------

  instance::Engine& engine(std::uint32_t number) { return *engines_[number]; }
  instance::Instance& at(sim::InstanceId id) { return *instances_[id.index()]; }
  /// What the schedule and the autoscaler have decided, and what has become ready by now, takes
  /// effect. `queued`, `shed`: requests of all gateways. True: the number of ready instances has
  /// changed.
  bool resize(std::int64_t queued, std::int64_t shed);
  void schedule_resize();

  // ---- state -------------------------------------------------------------------------------

  /// What a decision sees that knows `own`.
  signals::View view(signals::LocalState local);
  std::int64_t num_ready() const { return state_.num_ready(); }
  /// Whether no instance is ready, but one may become so.
  bool awaits_instances() const { return num_ready() == 0 && next_resize() != sim::kForever; }
  std::span<const std::unique_ptr<instance::Instance>> instances() const { return instances_; }
  /// Null unless instances are scraped.
  signals::Scrapes* scrapes() { return scrapes_.get(); }
  const std::vector<std::int64_t>& emitted(sim::Time now) override;
  /// Data-parallel ranks of each instance.
  std::vector<std::size_t> ranks() const;
  /// Adds the state of the instances, and the tokens emitted for each tenant. Precondition: there
  /// is a timeline, or policies need `tokens_by_group`, so that instances count them.
  void add_to(metrics::Sample& state, std::span<metrics::TenantSample> tenants);
  /// The run is over: brings the instances to where they stand at `end`, inclusive.
  void close(sim::Time end);

 private:
  std::vector<signals::SignalSource*> make_instances(workload::RequestListener& listener,
                                                     bool reference);
  sim::Time next_resize() const { return std::min(state_.next_ready(), resizer_.next()); }

  Context& context_;
  fleet::FleetState state_;
  fleet::Resizer resizer_;
  std::unique_ptr<signals::Scrapes> scrapes_;
  std::vector<std::unique_ptr<instance::Instance>> instances_;
  std::vector<instance::Engine*> engines_;
  signals::SignalStore signal_store_;
  std::optional<ExactEstimator> exact_estimator_;  // where some policy reads it
  std::vector<sim::RequestId> pending_evictions_;  // of requests on their way to instances
  std::vector<std::int64_t> emitted_;              // by group of requests
};

}  // namespace spillway::cluster
