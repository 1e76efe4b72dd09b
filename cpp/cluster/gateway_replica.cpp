#include "cluster/gateway_replica.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cluster/step_costs.h"
#include "signals/outstanding.h"
#include "signals/prefix_index.h"
#include "sim/phase.h"

namespace spillway::cluster {

using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

router::Dispatcher make_dispatcher(const Context& context, std::span<const std::size_t> ranks,
                                   router::DecisionLog& log) {
  const Simulation& simulation = context.simulation;
  std::unique_ptr<signals::PrefixIndex> prefix_index;
  std::unique_ptr<signals::Outstanding> outstanding;
  if (context.needs.prefix_index) {
    prefix_index = std::make_unique<signals::PrefixIndex>(prefix_index_blocks(simulation),
                                                          simulation.prefix_index.block_size_tokens,
                                                          context.requests, ranks);
  }
  if (context.needs.outstanding) {
    outstanding = std::make_unique<signals::Outstanding>(context.requests, ranks.size());
  }
  std::unique_ptr<signals::OnlinePredictor> predictor;
  if (context.needs.predictions) {
    predictor = std::make_unique<signals::OnlinePredictor>(context.requests);
  }
  router::Router policy = simulation.router;
  if (auto* turns = std::get_if<router::RoundRobin>(&policy)) {
    turns->per_model = turns->per_model && has_models(simulation);
  }
  return {policy,
          simulation.prefix_index,
          std::move(prefix_index),
          std::move(outstanding),
          std::move(predictor),
          context.needs,
          ranks.size(),
          context.seed,
          log};
}

}  // namespace

GatewayReplica::GatewayReplica(Context& context, std::size_t index, std::size_t replica,
                               std::span<const std::size_t> ranks, router::DecisionLog& log,
                               gateway::ServiceMeter* meter)
    : context_(context),
      index_(index),
      replica_(replica),
      drain_latency_(sim::from_seconds(context.simulation.gateway.drain_latency_s)),
      is_controlled_(gateway::is_controlled(context.simulation.gateway)),
      shortest_timeout_(
          gateway::shortest_timeout(context.simulation.gateway, context.requests.slo_classes)),
      pipeline_(context.simulation.gateway, static_cast<std::uint16_t>(replica), context.requests,
                context.states, ranks.size(), context.seed, context.may_change,
                step_costs(context.simulation)),
      dispatcher_(make_dispatcher(context, ranks, log)),
      drains_(context, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(replica)),
      log_(log) {
  if (has_pools(context.simulation)) {
    prefill_ = std::make_unique<router::Dispatcher>(make_dispatcher(context, ranks, log));
  }
  if (meter) pipeline_.set_meter(*meter);
  if (context.simulation.metrics.traced_candidates > 0) pipeline_.keep_details();
}

inline void GatewayReplica::drop(const gateway::Departures& departures) {
  for (const RequestId id : departures.dropped) dispatcher_.dropped(id);
}

gateway::Admitted GatewayReplica::admit(RequestId id, std::uint64_t retries,
                                        const signals::View& fleet) {
  const signals::RequestView request(context_.requests, id);
  const gateway::Admitted answer = with_view(request, fleet, [&](const signals::View& view) {
    return pipeline_.admit(id, retries, view, context_.now);
  });
  drop(answer.departures);
  if (answer.admitted) dispatcher_.admitted(request, fleet);
  return answer;
}

bool GatewayReplica::pass(RequestId id, std::uint64_t retries, const signals::View& fleet) {
  const signals::RequestView request(context_.requests, id);
  const bool is_admitted = with_view(request, fleet, [&](const signals::View& view) {
    return pipeline_.pass(id, retries, view, context_.now);
  });
  if (!is_admitted) return false;
  dispatcher_.admitted(request, fleet);
  context_.last_change = context_.now;
  ++context_.num_in_flight;
  return true;
}

// An immediate drain schedules the time-outs of the remaining requests itself.
bool GatewayReplica::queued() {
  if (drain_latency_ > Time{0}) watch_timeouts();
  return drains_.request(drain_latency_);
}

bool GatewayReplica::refused(RequestId id) {
  return drains_.is_cyclic() &&
         context_.states.reason[id.index()].stage == workload::Stage::queue &&
         drains_.request(Time{0});
}

const gateway::Departures& GatewayReplica::withdraw(RequestId id) {
  const gateway::Departures& departures =
      pipeline_.withdraw(id, {workload::Stage::client, 0}, context_.now);
  drop(departures);
  return departures;
}

const gateway::Departures& GatewayReplica::lose(RequestId id) {
  const bool was_queued = context_.states.outcome[id.index()] == workload::Outcome::queued;
  const gateway::Departures& departures = pipeline_.lose(id, context_.now);
  if (was_queued) drop(departures);
  return departures;
}

const gateway::Departures& GatewayReplica::drain(const signals::View* view, bool has_workers) {
  static const gateway::Departures kNone;
  if (!has_workers) {
    drains_.drained(pipeline_.counters().queued(), false);
    watch_timeouts();
    return kNone;
  }
  const gateway::Departures& departures = pipeline_.drain(view, context_.now);
  const bool has_dispatched = !departures.dispatched.empty();
  if (has_dispatched) {
    context_.last_change = context_.now;
    context_.num_in_flight += std::ssize(departures.dispatched);
    if (is_controlled_ && !has_tick_) schedule_tick(true);
  }
  drop(departures);
  watch_timeouts();
  const std::int64_t queued = pipeline_.counters().queued();
  if (drains_.is_one_per_attempt()) {
    drains_.drained(queued, has_dispatched || (drains_.signals_may_open_gate() &&
                                               (drains_.counts_idle_cycles() ||
                                                !pipeline_.waits_for_event(view, context_.now))));
  } else {
    drains_.drained(queued, drains_.signals_may_open_gate());
  }
  return departures;
}

bool GatewayReplica::first_token(RequestId id, sim::InstanceId instance, Time entered_engine) {
  answering_->first_token(id, instance, context_.now);
  return pipeline_.first_token(id, instance, entered_engine, context_.now) &&
         drains_.wake(drain_latency_);
}

bool GatewayReplica::release(RequestId id, workload::Outcome outcome) {
  --context_.num_in_flight;
  return pipeline_.release(id, outcome, context_.now) && drains_.wake(drain_latency_);
}

void GatewayReplica::start(std::int64_t workers) {
  pipeline_.set_workers(workers, context_.now);
  schedule_tick(is_controlled_, sim::from_seconds(context_.simulation.gateway.sensor.tick_phase_s));
}

bool GatewayReplica::tick(const signals::View* view) {
  pipeline_.tick(view, context_.now);
  return pipeline_.counters().queued() > 0;
}

void GatewayReplica::schedule_tick(bool continues, Time later) {
  has_tick_ = continues;
  if (!continues) return;
  context_.events.push({context_.now + context_.simulation.gateway.sensor.interval() + later,
                        Phase::controller_tick, static_cast<std::uint32_t>(replica_),
                        static_cast<std::uint32_t>(index_)});
}

Time GatewayReplica::skip_ticks(Time until) {
  const Time interval = context_.simulation.gateway.sensor.interval();
  const std::int64_t ticks = periods_to_skip(context_.now, interval, until);
  if (ticks > 0) pipeline_.repeat_tick(ticks);
  return Time{ticks * interval.ns};
}

const gateway::Departures& GatewayReplica::expire() {
  timeout_due_ = sim::kForever;
  const gateway::Departures& departures = pipeline_.expire(context_.now);
  drop(departures);
  return departures;
}

void GatewayReplica::find_timeouts() {
  const Time next = pipeline_.next_timeout();
  if (next >= timeout_due_) return;
  timeout_due_ = next;
  context_.events.push({next, Phase::queue_expiry, static_cast<std::uint32_t>(replica_),
                        static_cast<std::uint32_t>(index_)});
}

bool GatewayReplica::on_queue_departures() {
  context_.last_change = context_.now;
  const bool may_release = drains_.is_one_per_attempt() ||
                           (pipeline_.heads_block() && pipeline_.counters().queued() > 0);
  return may_release && drains_.wake(drain_latency_);
}

bool GatewayReplica::change(const Simulation& from, const Simulation& to,
                            const gateway::TenantChange& tenants) {
  // Waiting requests may still have the time-outs of before.
  shortest_timeout_ = std::min(
      shortest_timeout_, gateway::shortest_timeout(to.gateway, context_.requests.slo_classes));
  pipeline_.change(from.gateway, to.gateway, tenants, context_.now);
  dispatcher_.change(from.router, to.router);
  if (prefill_) prefill_->change(from.router, to.router);
  if (shortest_timeout_ != sim::kForever) find_timeouts();
  return pipeline_.counters().queued() > 0 && drains_.wake(drain_latency_);
}

bool GatewayReplica::set_workers(std::int64_t workers) {
  pipeline_.set_workers(workers, context_.now);
  watch_timeouts();
  return pipeline_.counters().queued() > 0 && drains_.wake(drain_latency_);
}

bool GatewayReplica::has_pending_work(bool awaits_workers) {
  const gateway::GatewayCounters& counters = pipeline_.counters();
  return counters.at_admission() > 0 || counters.in_flight() > kept_prompts_ ||
         drains_.is_pending() || pipeline_.next_timeout() != sim::kForever ||
         (awaits_workers && counters.queued() > 0);
}

}  // namespace spillway::cluster
