#include "cluster/migrations.h"

#include <utility>

#include "instance/fallible.h"
#include "sim/phase.h"

namespace spillway::cluster {

using sim::InstanceId;
using sim::RequestId;
using workload::Outcome;
using workload::Resumption;

Migrations::Migrations(Context& context, workload::RequestListener& run)
    : context_(context),
      run_(run),
      has_pools_(has_pools(context.simulation)),
      routing_latency_(sim::from_seconds(context.simulation.gateway.routing_latency_s)) {}

void Migrations::connect(const Clients& clients, Fleet& fleet, Gateways& gateways,
                         LoadEvents& load_events) {
  clients_ = &clients;
  fleet_ = &fleet;
  gateways_ = &gateways;
  load_events_ = &load_events;
}

bool Migrations::may_go_on(RequestId id) const {
  const fleet::Migration& rule = context_.simulation.fleet.migration;
  const Resumption& resumption = context_.states.resumptions[id.index()];
  const std::int32_t emitted = context_.states.emitted[id.index()];
  const std::int64_t known = std::int64_t{context_.requests.input_tokens(id)} + emitted;
  return context_.states.reason[id.index()].stage == workload::Stage::fault &&
         !resumption.gives_up && std::cmp_less(resumption.migrations, rule.limit) &&
         (rule.answered || emitted == 0) && !clients_->has_timed_out(id) &&
         !clients_->submissions().instance_of(id) &&
         (!rule.max_seq_len_tokens || known <= *rule.max_seq_len_tokens);
}

void Migrations::note_stay(RequestId id) {
  if (context_.streams()) return;
  const workload::RequestStates& states = context_.states;
  const std::size_t row = id.index();
  Stay stay{.id = id,
            .instance = states.instance[row],
            .rank = static_cast<std::int16_t>(states.rank_of(id)),
            .enqueued = states.enqueued[row],
            .left = context_.now,
            .lost_tokens = states.resumptions[row].lost_tokens};
  if (const LegColumns* legs = context_.record->legs.get()) {
    stay.prefill_instance = legs->prefill_instance[row];
    stay.prefill_end = legs->prefill_end[row];
    stay.transfer_begin = legs->transfer_begin[row];
    stay.transfer_end = legs->transfer_end[row];
  }
  context_.record->stays.push_back(stay);
}

// Not within the loop over events, which calls this seldom.
[[gnu::noinline]] bool Migrations::take(RequestId id) {
  if (!may_go_on(id)) return false;
  workload::RequestStates& states = context_.states;
  const std::size_t row = id.index();
  Resumption& resumption = states.resumptions[row];
  resumption.is_due = true;
  if (!has_pools_) resumption.lost_instance = states.instance[row];
  resumption.was_inside = sim::is_set(states.enqueued[row]);
  counts_.left += resumption.was_inside;
  note_stay(id);
  if (states.emitted[row] > 0 && resumption.emitted == 0) {
    resumption.enqueued = states.enqueued[row];
    resumption.scheduled = states.scheduled[row];
  }
  resumption.emitted = states.emitted[row];
  resumption.first_token = sim::kUnset;
  states.enqueued[row] = states.scheduled[row] = sim::kUnset;
  states.outcome[row] = Outcome::in_transit;
  states.reason[row] = {};
  GatewayReplica& gateway = gateways_->of(id);
  gateway.route_again(id, fleet_->view(gateway.local_state()));
  context_.events.push({context_.now + routing_latency_, sim::Phase::routing, 0, id.value});
  return true;
}

bool Migrations::fails(RequestId id) {
  Resumption& resumption = context_.states.resumptions[id.index()];
  if (!std::exchange(resumption.is_due, false)) return false;
  resumption.gives_up = true;
  context_.states.outcome[id.index()] = Outcome::failed;
  context_.states.reason[id.index()] = workload::kInstanceLost;
  return true;
}

void Migrations::routed(RequestId id) {
  Resumption& resumption = context_.states.resumptions[id.index()];
  if (!std::exchange(resumption.is_due, false)) return;
  ++resumption.migrations;
  ++(resumption.was_inside ? counts_.ongoing_request : counts_.new_request);
  fleet_->at(InstanceId{static_cast<std::size_t>(resumption.lost_instance)})
      .fallible()
      ->note_migrated();
}

void Migrations::first_token(RequestId id) {
  if (context_.states.resumptions[id.index()].emitted == 0) return run_.first_token(id);
  GatewayReplica& gateway = gateways_->of(id);
  const InstanceId instance = context_.instance_of(id);
  gateway.first_token_again(id, instance);
  load_events_->first_token(gateway.index(), id, instance);
}

void Migrations::left(RequestId id) {
  const Resumption& resumption = context_.states.resumptions[id.index()];
  const bool is_complete = context_.states.outcome[id.index()] == Outcome::completed;
  if (is_complete && resumption.migrations > 0) note_stay(id);
  if (is_complete && resumption.emitted > 0) {
    context_.states.enqueued[id.index()] = resumption.enqueued;
    context_.states.scheduled[id.index()] = resumption.scheduled;
  }
}

void Migrations::finished(RequestId id) {
  left(id);
  run_.finished(id);
}

}  // namespace spillway::cluster
