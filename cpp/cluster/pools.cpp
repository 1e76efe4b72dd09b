#include "cluster/pools.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>

#include "router/deciders/policies.h"
#include "sim/error.h"
#include "sim/phase.h"
#include "sim/value.h"

namespace spillway::cluster {

using instance::Leg;
using instance::Role;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

namespace {

// Groups of role both are part of both pools.
std::vector<InstanceId> instances_of(const Simulation& simulation, Role role) {
  std::vector<InstanceId> found;
  std::size_t next = 0;
  for (const instance::InstanceGroup& group : simulation.instances) {
    for (std::int64_t i = 0; i < group.count; ++i, ++next) {
      if (group.role == role || group.role == Role::both) found.emplace_back(next);
    }
  }
  return found;
}

// Whether a request may leave before it is answered.
bool has_withdrawals(const Simulation& simulation) {
  return !simulation.reaction.is_passive() ||
         std::ranges::any_of(simulation.tenants,
                             [](const workload::Tenant& tenant) {
                               return tenant.reaction && !tenant.reaction->is_passive();
                             }) ||
         std::ranges::any_of(simulation.changes,
                             [](const Change& change) { return !change.cancel.empty(); });
}

bool reads_loads(const Simulation& simulation) {
  return std::holds_alternative<router::Conditional>(simulation.disaggregation.decider);
}

}  // namespace

Pools::Pools(Context& context, workload::RequestListener& run)
    : context_(context),
      run_(run),
      is_prefill_first_(context.simulation.disaggregation.order == router::LegOrder::prefill_first),
      sends_decode_first_(context.simulation.disaggregation.handoff ==
                          router::Handoff::at_dispatch),
      rejects_busy_(std::ranges::any_of(context.simulation.gateway.admission,
                                        [](const gateway::Admission& policy) {
                                          return std::holds_alternative<gateway::BusyThreshold>(
                                              policy);
                                        })),
      may_be_withdrawn_(has_withdrawals(context.simulation)),
      decider_(std::visit([](const auto& config) { return make(config); },
                          context.simulation.disaggregation.decider)),
      reads_prefixes_(signals::needs_of(context.simulation.disaggregation.decider).prefix_index),
      loads_(reads_loads(context.simulation) ? std::make_unique<PoolLoads>(context) : nullptr),
      prefill_(instances_of(context.simulation, Role::prefill)),
      decode_(instances_of(context.simulation, Role::decode)),
      bytes_per_block_(
          static_cast<double>(context.simulation.instances.front().block_size_tokens *
                              context.simulation.instances.front().kv_bytes_per_token)),
      routing_latency_(sim::from_seconds(context.simulation.gateway.routing_latency_s)),
      link_(context.simulation.disaggregation.link) {}

void Pools::connect(Fleet& fleet, Gateways& gateways, LoadEvents& load_events) {
  fleet_ = &fleet;
  gateways_ = &gateways;
  load_events_ = &load_events;
  const bool may_be_remote =
      !std::holds_alternative<router::NeverRemote>(context_.simulation.disaggregation.decider);
  const bool begins_with_prefill = is_prefill_first_ && may_be_remote && !prefill_.empty();
  fleet.set_pools(prefill_, decode_, begins_with_prefill ? prefill_ : decode_);
}

LegColumns* Pools::columns_of(RequestId id) {
  LegColumns* columns = context_.record->legs.get();
  if (!columns) return nullptr;
  if (columns->size() <= id.index()) columns->resize(context_.requests.capacity());
  return columns;
}

// ---- choices -----------------------------------------------------------------------------------

std::optional<workload::ReasonCode> Pools::route(RequestId id) {
  if (jobs_.size() <= id.index()) jobs_.resize(context_.requests.capacity());
  if (LegColumns* columns = columns_of(id)) columns->clear(id);
  Job& job = job_of(id);
  const std::optional<workload::ReasonCode> why = route_local_or_remote(id, job);
  if (why) {
    job = {};
  } else {
    gateway_of(id).count_routed(1);
  }
  return why;
}

std::optional<workload::ReasonCode> Pools::route_local_or_remote(RequestId id, Job& job) {
  std::optional<router::Target> prefill;
  std::optional<router::Target> decode;
  workload::ReasonCode why{workload::Stage::router, 0};
  bool is_remote = !prefill_.empty();
  if (is_prefill_first_) {
    is_remote = is_remote && !is_local(id, std::nullopt);
    if (is_remote) {
      prefill = pick_prefill(id);
      if (!prefill) return why;
    }
    if (!is_remote || sends_decode_first_) {
      decode = pick_decode(id, why);
      if (!decode) return why;
    }
  } else {
    decode = pick_decode(id, why);
    if (!decode) return why;
    is_remote = is_remote && !is_local(id, decode->instance);
    // Without an instance for its prompt, the request is served wholly.
    if (is_remote) prefill = pick_prefill(id);
    is_remote = prefill.has_value();
  }
  // Where the same instance is chosen for both, nothing is moved.
  if (prefill && decode && prefill->instance == decode->instance) is_remote = false;
  job.is_remote = is_remote;
  if (is_remote) book_prefill(id, *prefill);
  if (decode) book_decode(id, *decode);
  context_.states.instance[id.index()] =
      static_cast<std::int32_t>((is_remote ? job.prefill : job.decode).value);
  if (!is_remote) {
    ++counts_.local;
    send(id, Leg::whole);
  } else {
    send(id, sends_decode_first_ ? Leg::decode : Leg::prefill);
  }
  return std::nullopt;
}

void Pools::route_decode(RequestId id) {
  Job& job = job_of(id);
  --job.on_the_way;
  job.has_prefilled = false;
  if (job.leaves_as) return end(id, *job.leaves_as);
  workload::ReasonCode why{workload::Stage::handoff, 0};
  const std::optional<router::Target> target = pick_decode(id, why);
  if (!target) {
    context_.states.reason[id.index()] = why;
    return end(id, Outcome::rejected);
  }
  book_decode(id, *target);
  target->instance == job.prefill ? continue_there(id) : send(id, Leg::decode);
}

// The instance of the decode leg has the prompt already.
void Pools::continue_there(RequestId id) {
  instance::LegEngine& engine = *fleet_->at(job_of(id).decode).legs();
  if (!engine.accepts(id, Leg::decode)) return engine.enqueue_leg(id, Leg::decode, context_.now);
  job_of(id).is_unread = false;
  ++counts_.kept;
  delay_steps();
  engine.keep(id, context_.now);
}

std::optional<router::Target> Pools::pick_prefill(RequestId id) {
  GatewayReplica& gateway = gateway_of(id);
  const signals::View fleet = fleet_->view(gateway.local_state_of_prefill());
  return gateway.decide_prefill(id, fleet.of(prefill_));
}

std::optional<router::Target> Pools::pick_decode(RequestId id, workload::ReasonCode& why) {
  GatewayReplica& gateway = gateway_of(id);
  const signals::View pool = fleet_->view(gateway.local_state()).of(decode_);
  bool is_free = !rejects_busy_;
  for (std::size_t i = 0; i < pool.size() && !is_free; ++i) is_free = !pool.is_busy(i);
  if (!is_free) {
    why = {workload::Stage::handoff, 1};
    return std::nullopt;
  }
  return gateway.decide_or_reject(id, pool);
}

bool Pools::is_local(RequestId id, std::optional<InstanceId> decode) {
  router::LegsQuestion question{.input_tokens = context_.requests.input_tokens(id)};
  if (loads_) {
    look_ahead(id, decode, question);
  } else if (reads_prefixes_ && decode) {
    question.cached_tokens = sent_tokens(id, *decode, gateway_of(id).local_state());
  }
  return decider_->is_local(question);
}

void Pools::look_ahead(RequestId id, std::optional<InstanceId> decode,
                       router::LegsQuestion& question) {
  GatewayReplica& gateway = gateway_of(id);
  if (!decode) {
    decode = gateway.preview(id, fleet_->view(gateway.local_state()).of(decode_));
    if (*decode == router::kNoInstance) return;
  }
  question.cached_tokens = sent_tokens(id, *decode, gateway.local_state());
  question.decode = loads_->decode(gateway.index(), *decode, question.input_tokens);
  const signals::View fleet = fleet_->view(gateway.local_state_of_prefill());
  const InstanceId prefill = gateway.preview_prefill(id, fleet.of(prefill_));
  if (prefill != router::kNoInstance) question.prefill = loads_->prefill(gateway.index(), prefill);
}

// Of its prompt, by the gateway's own record.
std::int64_t Pools::sent_tokens(RequestId id, InstanceId to, const signals::LocalState& state) {
  const std::array chosen{to};
  return fleet_->view(state).of(chosen).sent_tokens({context_.requests, id}, 0);
}

void Pools::book_prefill(RequestId id, const router::Target& target) {
  job_of(id).prefill = target.instance;
  job_of(id).in_prefill = true;
  GatewayReplica& gateway = gateway_of(id);
  if (loads_) {
    const std::int64_t uncached =
        context_.requests.input_tokens(id) -
        sent_tokens(id, target.instance, gateway.local_state_of_prefill());
    job_of(id).booked_tokens = uncached;
    loads_->add_prefill(gateway.index(), target.instance, uncached);
  }
  gateway.send_prefill(id, target);
  load_events_->sent(gateway.index(), id, target.instance);
  if (LegColumns* columns = columns_of(id)) {
    columns->prefill_instance[id.index()] = static_cast<std::int32_t>(target.instance.value);
  }
}

void Pools::book_decode(RequestId id, const router::Target& target) {
  job_of(id).decode = target.instance;
  job_of(id).in_decode = true;
  GatewayReplica& gateway = gateway_of(id);
  if (loads_) loads_->add_decode(gateway.index(), target.instance, id);
  gateway.send_decode(id, target);
  job_of(id).is_remote ? load_events_->sent_to_continue(gateway.index(), id, target.instance)
                       : load_events_->sent(gateway.index(), id, target.instance);
}

void Pools::unbook_prefill(RequestId id, Job& job, bool is_completed) {
  if (!std::exchange(job.in_prefill, false)) return;
  GatewayReplica& gateway = gateway_of(id);
  if (loads_) loads_->add_prefill(gateway.index(), job.prefill, -job.booked_tokens);
  gateway.prefill_ended(id, job.prefill, is_completed);
  load_events_->finished(gateway.index(), id, job.prefill);
}

void Pools::unbook_decode(RequestId id, Job& job) {
  if (!std::exchange(job.in_decode, false)) return;
  GatewayReplica& gateway = gateway_of(id);
  if (loads_) loads_->drop_decode(gateway.index(), job.decode, id);
  gateway.decode_ended(id, job.decode);
  job.is_remote ? load_events_->finished_continuing(gateway.index(), id, job.decode)
                : load_events_->finished(gateway.index(), id, job.decode);
}

// ---- legs --------------------------------------------------------------------------------------

void Pools::send(RequestId id, Leg leg) {
  Job& job = job_of(id);
  ++job.on_the_way;
  job.next = leg;
  const InstanceId to = leg == Leg::prefill ? job.prefill : job.decode;
  context_.events.push(
      {context_.now + fleet_->at(to).entry_delay(id), Phase::leg_entry, to.value, id.value});
}

void Pools::enter(const sim::Event& event) {
  const RequestId id{event.subject()};
  Job& job = job_of(id);
  --job.on_the_way;
  if (job.leaves_as) return end(id, *job.leaves_as);
  if (context_.requests.fails(id)) return end(id, Outcome::failed);
  instance::Instance& to = fleet_->at(InstanceId{event.tie()});
  if (job.next == Leg::whole) return to.enqueue(id, 0, context_.now);
  // The call may end the request, or take the blocks of a decode leg.
  if (to.legs()->accepts(id, job.next)) {
    const bool is_prefill = job.next == Leg::prefill;
    (is_prefill ? job.is_prefilling : job.has_decode_leg) = true;
    ++(is_prefill ? counts_.prefill_entered : counts_.decode_entered);
  }
  to.legs()->enqueue_leg(id, job.next, context_.now);
}

void Pools::prefill_ended(RequestId id) {
  Job& job = job_of(id);
  ++counts_.prefill_ended;
  job.is_prefilling = false;
  job.is_unread = true;
  if (LegColumns* columns = columns_of(id)) columns->prefill_end[id.index()] = context_.now;
  unbook_prefill(id, job, true);
  if (sends_decode_first_) return begin_transfer(id);
  if (!is_prefill_first_) return send(id, Leg::decode);
  job.has_prefilled = true;
  ++job.on_the_way;
  context_.events.push({context_.now + routing_latency_, Phase::routing, 0, id.value});
}

void Pools::blocks_taken(RequestId id, std::int64_t missing) {
  job_of(id).missing_blocks = missing;
  sends_decode_first_ ? send(id, Leg::prefill) : begin_transfer(id);
}

void Pools::seated(RequestId id) {
  if (LegColumns* columns = columns_of(id)) columns->decode_scheduled[id.index()] = context_.now;
}

void Pools::wasted(RequestId id, std::int64_t tokens) {
  if (LegColumns* columns = columns_of(id)) columns->wasted_tokens[id.index()] += tokens;
}

// ---- transfers ---------------------------------------------------------------------------------

void Pools::begin_transfer(RequestId id) {
  Job& job = job_of(id);
  job.is_moving = true;
  const double bytes = static_cast<double>(job.missing_blocks) * bytes_per_block_;
  ++counts_.transfers_begun;
  counts_.moved_blocks += job.missing_blocks;
  if (LegColumns* columns = columns_of(id)) columns->transfer_begin[id.index()] = context_.now;
  link_.begin(id, {job.prefill.value, job.decode.value}, bytes, context_.now);
  watch_link();
}

void Pools::watch_link() {
  ++link_state_;
  const Time next = link_.next();
  if (next == sim::kForever) return;
  context_.events.push({next, Phase::transfer_end, 0, link_state_});
}

void Pools::end_transfers(const sim::Event& event) {
  if (event.subject() != link_state_) return;
  const std::vector<RequestId> ended = link_.take_ended(context_.now);
  watch_link();
  if (ended.empty()) return;
  delay_steps();
  for (const RequestId id : ended) {
    Job& job = job_of(id);
    job.is_moving = job.is_unread = job.has_decode_leg = false;
    ++counts_.transfers_ended;
    if (LegColumns* columns = columns_of(id)) columns->transfer_end[id.index()] = context_.now;
    context_.states.instance[id.index()] = static_cast<std::int32_t>(job.decode.value);
    fleet_->at(job.prefill).legs()->release(id, true, context_.now);
    fleet_->at(job.decode).legs()->arrived(id, context_.now);
    load_events_->changed(job.prefill);
    load_events_->changed(job.decode);
  }
}

// An idle engine would start its step at once if no event were due.
void Pools::delay_steps() {
  context_.events.push({context_.now, Phase::transfer_end, 0, kNothing});
}

// ---- ends --------------------------------------------------------------------------------------

void Pools::withdraw(RequestId id, Outcome outcome) {
  if (!sim::is_set(context_.states.dispatched[id.index()])) return;
  if (jobs_.size() <= id.index()) jobs_.resize(context_.requests.capacity());
  Job& job = job_of(id);
  const bool is_routed = job.in_prefill || job.in_decode || job.is_unread;
  if (job.on_the_way > 0 || !is_routed) {
    if (!job.leaves_as) job.leaves_as = outcome;
    return;
  }
  end(id, outcome);
}

// The request ends outside an instance; as an instance lets a request leave.
void Pools::end(RequestId id, Outcome outcome) {
  const bool has_entered = sim::is_set(context_.states.enqueued[id.index()]);
  const bool is_withdrawn = outcome == Outcome::cancelled || outcome == Outcome::evicted;
  counts_.withdrawn_between += has_entered && is_withdrawn;
  context_.states.outcome[id.index()] = outcome;
  const auto engine = static_cast<std::uint32_t>(context_.states.instance[id.index()]);
  finished(id);
  context_.events.push({context_.now, Phase::permit_release, engine, id.value});
}

void Pools::finished(RequestId id) {
  Job job = std::exchange(job_of(id), {});
  counts_.prefill_withdrawn += job.is_prefilling;
  unbook_prefill(id, job, false);
  unbook_decode(id, job);
  gateway_of(id).count_routed(-1);
  if (job.is_moving) {
    link_.drop(id, context_.now);
    ++counts_.transfers_cut;
    watch_link();
  }
  if (job.is_unread || job.has_decode_leg) delay_steps();
  if (job.is_unread) {
    fleet_->at(job.prefill).legs()->release(id, false, context_.now);
    load_events_->changed(job.prefill);
  }
  if (job.has_decode_leg) {
    ++counts_.decode_withdrawn;
    fleet_->at(job.decode).legs()->drop(id, context_.now);
    load_events_->changed(job.decode);
  }
}

void Pools::check_progress() {
  if (may_be_withdrawn_ || link_.next() != sim::kForever) return;
  for (const Job& job : jobs_) {
    if (job.on_the_way > 0) return;
  }
  for (const auto& instance : fleet_->instances()) {
    if (!instance->legs()->is_idle()) return;
  }
  report_deadlock();
}

// Steps go on, but no request gets further: each time memory is short, and prompts that no one
// reads hold the rest.
void Pools::check_preemptions() {
  instance::Counters totals;
  for (const auto& instance : fleet_->instances()) totals += instance->counters();
  const instance::Counters last = std::exchange(last_totals_, totals);
  const bool has_moved = totals.tokens_emitted != last.tokens_emitted ||
                         totals.entered != last.entered || totals.cancelled != last.cancelled ||
                         totals.handed_over != last.handed_over ||
                         totals.completed != last.completed || totals.refused != last.refused;
  if (has_moved || may_be_withdrawn_ || totals.preemptions - last.preemptions < 1000) return;
  report_deadlock();
}

void Pools::report_deadlock() const {
  std::string text;
  std::int64_t stuck = 0;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    if (!job.is_unread && !(job.has_decode_leg && job.is_prefilling)) continue;
    if (++stuck > 2) continue;
    const InstanceId holds = job.is_unread ? job.prefill : job.decode;
    const InstanceId needs = job.is_unread ? job.decode : job.prefill;
    text += " request " + std::to_string(context_.requests.row(RequestId{i})) +
            " holds blocks of instance " + std::to_string(holds.value) +
            " and waits for some of instance " + std::to_string(needs.value) + ";";
  }
  if (stuck == 0) return;
  throw sim::LivelockError("prefill and decode pools wait for each other's memory at " +
                           sim::to_text(sim::to_seconds(context_.now)) + " s:" + text + " " +
                           std::to_string(stuck) +
                           " requests in all. Larger KV memories, or a limit in the gateway, "
                           "avoid it");
}

metrics::LegCounts Pools::counts() const {
  metrics::LegCounts counts = counts_;
  for (const Job& job : jobs_) {
    counts.prefill_inside += job.is_prefilling;
    counts.decode_waiting += job.has_decode_leg;
    counts.transfers_under_way += job.is_moving;
  }
  return counts;
}

}  // namespace spillway::cluster
