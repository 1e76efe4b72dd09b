#include "cluster/pools.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

#include "router/deciders/policies.h"
#include "sim/error.h"
#include "sim/phase.h"
#include "sim/value.h"

namespace spillway::cluster {

using instance::Fallible;
using instance::Leg;
using instance::Role;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

namespace {

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

std::vector<std::unique_ptr<router::Decider>> deciders_of(const Simulation& simulation) {
  std::vector<std::unique_ptr<router::Decider>> deciders;
  deciders.reserve(static_cast<std::size_t>(simulation.gateway.replicas));
  for (std::int64_t i = 0; i < simulation.gateway.replicas; ++i) {
    deciders.push_back(std::visit([](const auto& config) { return make(config); },
                                  simulation.disaggregation.decider));
  }
  return deciders;
}

std::optional<InstanceId> instance_of(const std::optional<router::Target>& target) {
  return target ? std::optional(target->instance) : std::nullopt;
}

}  // namespace

Pools::Pools(Context& context, workload::RequestListener& run, Migrations* migrations)
    : context_(context),
      run_(migrations ? *migrations : run),
      migrations_(migrations),
      is_prefill_first_(context.simulation.disaggregation.order == router::LegOrder::prefill_first),
      sends_decode_first_(context.simulation.disaggregation.handoff ==
                          router::Handoff::at_dispatch),
      ends_at_first_token_(context.simulation.disaggregation.ends_at_first_token),
      reads_on_(context.simulation.disaggregation.reads_on),
      domains_(context.simulation),
      rejects_busy_(std::ranges::any_of(context.simulation.gateway.admission,
                                        [](const gateway::Admission& policy) {
                                          return std::holds_alternative<gateway::BusyThreshold>(
                                              policy);
                                        })),
      may_be_withdrawn_(has_withdrawals(context.simulation)),
      deciders_(deciders_of(context.simulation)),
      reads_prefixes_(signals::needs_of(context.simulation.disaggregation.decider).prefix_index),
      reads_prefill_cache_(router::reads_prefill_cache(context.simulation.disaggregation.decider)),
      loads_(router::reads_loads(context.simulation.disaggregation.decider)
                 ? std::make_unique<PoolLoads>(context)
                 : nullptr),
      prefill_(instances_of(context.simulation, Role::prefill)),
      decode_(instances_of(context.simulation, Role::decode)),
      bytes_per_block_(
          static_cast<double>(context.simulation.instances.front().block_size_tokens *
                              context.simulation.instances.front().kv_bytes_per_token)),
      routing_latency_(sim::from_seconds(context.simulation.gateway.routing_latency_s)),
      retries_(context.simulation.disaggregation),
      link_(context.simulation.disaggregation.link) {}

void Pools::connect(Fleet& fleet, Gateways& gateways, LoadEvents& load_events,
                    Submissions& submissions) {
  fleet_ = &fleet;
  gateways_ = &gateways;
  load_events_ = &load_events;
  submissions_ = &submissions;
  const bool may_be_remote =
      !std::holds_alternative<router::NeverRemote>(context_.simulation.disaggregation.decider);
  begins_with_prefill_ = is_prefill_first_ && may_be_remote;
  fleet.set_serving(decode_);
  note_ready();
}

void Pools::note_ready() {
  const auto ready_of = [&](const std::vector<InstanceId>& pool) {
    std::vector<InstanceId> ready;
    if (fleet_->num_ready() == 0) return ready;
    std::ranges::copy_if(pool, std::back_inserter(ready),
                         [&](InstanceId id) { return fleet_->is_ready(id); });
    return ready;
  };
  ready_prefill_ = ready_of(prefill_);
  std::vector<InstanceId> decode = ready_of(decode_);
  can_decode_ = !decode.empty();
  if (can_decode_) ready_decode_ = std::move(decode);
  fleet_->set_has_workers(can_decode_);
  fleet_->set_pools(
      ready_prefill_, ready_decode_,
      begins_with_prefill_ && !ready_prefill_.empty() ? ready_prefill_ : ready_decode_);
}

LegColumns* Pools::columns_of(RequestId id) {
  LegColumns* columns = context_.record->legs.get();
  if (!columns) return nullptr;
  if (columns->size() <= id.index()) columns->resize(context_.requests.capacity());
  return columns;
}

instance::LegEngine& Pools::prefill_engine(const Job& job) const {
  return *fleet_->at(job.prefill).rank(job.prefill_rank).legs();
}

instance::LegEngine& Pools::decode_engine(const Job& job) const {
  return *fleet_->at(job.decode).rank(job.decode_rank).legs();
}

void Pools::move_to(RequestId id, InstanceId instance, std::uint32_t rank) {
  context_.states.instance[id.index()] = static_cast<std::int32_t>(instance.value);
  if (!context_.states.has_ranks) return;
  context_.states.rank[id.index()] = static_cast<std::int16_t>(rank);
}

void Pools::at_rank(RequestId id, std::uint32_t rank, const auto& call) {
  if (!context_.states.has_ranks) return call();
  std::int16_t& shown = context_.states.rank[id.index()];
  const std::int16_t before = std::exchange(shown, static_cast<std::int16_t>(rank));
  call();
  shown = before;
}

// ---- choices -----------------------------------------------------------------------------------

std::optional<workload::ReasonCode> Pools::route(RequestId id) {
  if (jobs_.size() <= id.index()) jobs_.resize(context_.requests.capacity());
  if (LegColumns* columns = columns_of(id)) columns->clear(id);
  Job& job = job_of(id);
  const std::optional<std::int64_t> only = submissions_->instance_of(id);
  const std::optional<workload::ReasonCode> why =
      only ? route_to_only(id, job, InstanceId{static_cast<std::size_t>(*only)})
           : route_local_or_remote(id, job);
  if (why) {
    job = {};
  } else {
    gateway_of(id).count_routed(1);
    if (migrations_) migrations_->routed(id);
  }
  return why;
}

std::optional<workload::ReasonCode> Pools::route_local_or_remote(RequestId id, Job& job) {
  std::optional<router::Target> prefill;
  std::optional<router::Target> decode;
  workload::ReasonCode why{workload::Stage::router, 0};
  bool is_remote = !choices(id, ready_prefill_).empty();
  if (is_prefill_first_) {
    is_remote = is_remote && !is_local(id, std::nullopt);
    if (is_remote) {
      prefill = pick_prefill(id, std::nullopt);
      if (!prefill) return why;
    }
    if (!is_remote || sends_decode_first_) {
      decode = pick_decode(id, instance_of(prefill), why);
      if (!decode && prefill) gateway_of(id).take_back_prefill(id, prefill->instance);
      if (!decode) return why;
    }
  } else {
    decode = pick_decode(id, std::nullopt, why);
    if (!decode) return why;
    is_remote = is_remote && !is_local(id, decode->instance);
    // Without an instance for its prompt, the request is served wholly.
    if (is_remote) prefill = pick_prefill(id, decode->instance);
    is_remote = prefill.has_value();
  }
  // Where the same instance is chosen for both, nothing is moved.
  if (prefill && decode && prefill->instance == decode->instance) {
    gateway_of(id).take_back_prefill(id, prefill->instance);
    is_remote = false;
  }
  job.is_remote = is_remote;
  const std::int64_t left_tokens = context_.requests.input_tokens(id) +
                                   context_.requests.target_output_tokens(id) - prompt_of(id);
  job.is_answered = is_remote && ends_at_first_token_ && left_tokens == 1;
  if (is_remote) book_prefill(id, *prefill);
  if (decode) book_decode(id, *decode);
  if (is_remote) {
    move_to(id, job.prefill, job.prefill_rank);
  } else {
    move_to(id, job.decode, job.decode_rank);
    ++counts_.local;
  }
  send(id, !is_remote || job.is_answered ? Leg::whole
           : sends_decode_first_         ? Leg::decode
                                         : Leg::prefill);
  return std::nullopt;
}

void Pools::route_decode(RequestId id) {
  Job& job = job_of(id);
  --job.on_the_way;
  job.has_prefilled = false;
  if (job.leaves_as) return leave(id, *job.leaves_as);
  workload::ReasonCode why{workload::Stage::handoff, 0};
  const workload::HandOff* to = submissions_->handed_off(id);
  const std::optional<router::Target> target =
      to ? pick_only(id, InstanceId{static_cast<std::size_t>(to->instance)})
         : pick_decode(id, job.prefill, why);
  if (!target && job.leaves_when_read) return end(id, Outcome::cancelled);
  if (!target) {
    context_.states.reason[id.index()] = why;
    return end(id, Outcome::rejected);
  }
  book_decode(id, *target);
  // Each rank has a memory of its own.
  const bool is_there = job.decode == job.prefill && job.decode_rank == job.prefill_rank;
  is_there ? continue_there(id) : send(id, Leg::decode);
}

// The instance of the decode leg has the prompt already.
void Pools::continue_there(RequestId id) {
  instance::LegEngine& engine = decode_engine(job_of(id));
  if (!engine.accepts(id, Leg::decode)) {
    if (job_of(id).leaves_when_read) return end(id, Outcome::cancelled);
    return engine.enqueue_leg(id, Leg::decode, context_.now);
  }
  job_of(id).is_unread = false;
  ++counts_.kept;
  if (LegColumns* columns = columns_of(id)) columns->transfer_end[id.index()] = context_.now;
  delay_steps();
  engine.keep(id, context_.now);
  leave_if_read(id);
}

void Pools::leave_if_read(RequestId id) {
  const Job& job = job_of(id);
  if (!job.leaves_when_read) return;
  fleet_->at(job.decode).cancel(id, job.decode_rank, Outcome::cancelled, context_.now);
}

std::span<const InstanceId> Pools::choices(RequestId id, const std::vector<InstanceId>& ready,
                                           std::optional<InstanceId> first) {
  const bool has_lost_one = migrations_ && context_.states.resumptions[id.index()].is_due;
  const bool stays_near = first && domains_.matter();
  if (!has_lost_one && !stays_near) return ready;
  choices_ = ready;
  if (has_lost_one) {
    std::erase_if(choices_, [&](InstanceId other) {
      return std::cmp_equal(other.value, context_.states.resumptions[id.index()].lost_instance);
    });
  }
  if (stays_near) domains_.keep_near(*first, choices_);
  return choices_;
}

std::optional<router::Target> Pools::pick_prefill(RequestId id, std::optional<InstanceId> decode) {
  const std::span<const InstanceId> ready = choices(id, ready_prefill_, decode);
  if (ready.empty()) return std::nullopt;
  GatewayReplica& gateway = gateway_of(id);
  const signals::View fleet = fleet_->view(gateway.local_state_of_prefill());
  return gateway.decide_prefill(id, fleet.of(ready));
}

std::optional<router::Target> Pools::pick_decode(RequestId id, std::optional<InstanceId> prefill,
                                                 workload::ReasonCode& why) {
  const std::span<const InstanceId> ready = choices(id, ready_decode_, prefill);
  if (!can_decode_ || ready.empty()) return std::nullopt;
  GatewayReplica& gateway = gateway_of(id);
  const signals::View pool = fleet_->view(gateway.local_state()).of(ready);
  bool is_free = !rejects_busy_;
  for (std::size_t i = 0; i < pool.size() && !is_free; ++i) is_free = !pool.is_busy(i);
  if (!is_free) {
    why = {workload::Stage::handoff, 1};
    return std::nullopt;
  }
  return gateway.decide_or_reject(id, pool);
}

bool Pools::is_local(RequestId id, std::optional<InstanceId> decode) {
  const signals::RequestView request(context_.requests, id);
  router::LegsQuestion question{
      .request = &request, .now = context_.now, .prompt_tokens = prompt_of(id)};
  const GatewayReplica& gateway = gateway_of(id);
  if (loads_) {
    look_ahead(id, decode, question);
  } else if (reads_prefixes_ && decode) {
    question.decode.emplace().cached_tokens = sent_tokens(id, *decode, gateway.local_state());
  }
  return deciders_[gateway.index()]->is_local(question);
}

void Pools::look_ahead(RequestId id, std::optional<InstanceId> decode,
                       router::LegsQuestion& question) {
  GatewayReplica& gateway = gateway_of(id);
  question.prompt_blocks = loads_->blocks_for(question.prompt_tokens);
  const std::optional<InstanceId> first = decode;
  const std::span<const InstanceId> ready = choices(id, ready_decode_);
  if (!decode && can_decode_ && !ready.empty()) {
    decode = gateway.preview(id, fleet_->view(gateway.local_state()).of(ready));
  }
  if (decode && *decode != router::kNoInstance) {
    question.decode = loads_->choice(gateway.index(), *decode);
    question.decode->cached_tokens = sent_tokens(id, *decode, gateway.local_state());
  }
  const signals::LocalState& state = gateway.local_state_of_prefill();
  const std::span<const InstanceId> prompts = choices(id, ready_prefill_, first);
  if (prompts.empty()) return;
  const InstanceId prefill = gateway.preview_prefill(id, fleet_->view(state).of(prompts));
  if (prefill == router::kNoInstance) return;
  question.prefill = loads_->choice(gateway.index(), prefill);
  if (reads_prefill_cache_) question.prefill->cached_tokens = sent_tokens(id, prefill, state);
}

// Of its prompt, by the gateway's own record.
std::int64_t Pools::sent_tokens(RequestId id, InstanceId to, const signals::LocalState& state) {
  const std::array chosen{to};
  return fleet_->view(state).of(chosen).sent_tokens({context_.requests, id}, 0);
}

void Pools::book_prefill(RequestId id, const router::Target& target) {
  job_of(id).prefill = target.instance;
  job_of(id).prefill_rank = static_cast<std::uint32_t>(target.rank);
  job_of(id).in_prefill = true;
  fleet_->at(target.instance).sent(target.rank);
  fleet_->note_prompt(target.instance, prompt_of(id));
  GatewayReplica& gateway = gateway_of(id);
  if (loads_) {
    const std::int64_t uncached =
        prompt_of(id) - sent_tokens(id, target.instance, gateway.local_state_of_prefill());
    job_of(id).booked_tokens = uncached;
    loads_->add_prefill(gateway.index(), target.instance, uncached);
  }
  gateway.send_prefill(id, target);
  at_rank(id, job_of(id).prefill_rank,
          [&] { load_events_->sent(gateway.index(), id, target.instance); });
  if (LegColumns* columns = columns_of(id)) {
    columns->prefill_instance[id.index()] = static_cast<std::int32_t>(target.instance.value);
  }
}

void Pools::book_decode(RequestId id, const router::Target& target) {
  const Job& job = job_of(id);
  job_of(id).decode = target.instance;
  job_of(id).decode_rank = static_cast<std::uint32_t>(target.rank);
  job_of(id).in_decode = true;
  fleet_->at(target.instance).sent(target.rank);
  if (!job.is_remote) fleet_->note_prompt(target.instance, prompt_of(id));
  GatewayReplica& gateway = gateway_of(id);
  if (loads_) loads_->add_decode(gateway.index(), target.instance, prompt_of(id));
  gateway.send_decode(id, target);
  at_rank(id, job.decode_rank, [&] {
    job.is_remote ? load_events_->sent_to_continue(gateway.index(), id, target.instance)
                  : load_events_->sent(gateway.index(), id, target.instance);
  });
}

void Pools::unbook_prefill(RequestId id, Job& job, bool is_completed) {
  if (!std::exchange(job.in_prefill, false)) return;
  GatewayReplica& gateway = gateway_of(id);
  if (loads_) loads_->add_prefill(gateway.index(), job.prefill, -job.booked_tokens);
  gateway.prefill_ended(id, job.prefill, is_completed);
  fleet_->at(job.prefill).left(job.prefill_rank);
  at_rank(id, job.prefill_rank, [&] { load_events_->finished(gateway.index(), id, job.prefill); });
}

void Pools::unbook_decode(RequestId id, Job& job) {
  if (!std::exchange(job.in_decode, false)) return;
  GatewayReplica& gateway = gateway_of(id);
  if (loads_) loads_->drop_decode(gateway.index(), job.decode, prompt_of(id));
  gateway.decode_ended(id, job.decode);
  fleet_->at(job.decode).left(job.decode_rank);
  at_rank(id, job.decode_rank, [&] {
    job.is_remote ? load_events_->finished_continuing(gateway.index(), id, job.decode)
                  : load_events_->finished(gateway.index(), id, job.decode);
  });
}

// ---- legs --------------------------------------------------------------------------------------

void Pools::send(RequestId id, Leg leg) {
  Job& job = job_of(id);
  ++job.on_the_way;
  job.next = leg;
  const InstanceId to = destination(job);
  context_.events.push(
      {context_.now + fleet_->at(to).entry_delay(id), Phase::leg_entry, to.value, id.value});
}

void Pools::enter(const sim::Event& event) {
  if (event.tie() == PrefillRetries::kTie) return send_again();
  const RequestId id{event.subject()};
  Job& job = job_of(id);
  --job.on_the_way;
  if (job.leaves_as) return leave(id, *job.leaves_as);
  if (context_.requests.fails(id)) {
    return end(id, job.leaves_when_read ? Outcome::cancelled : Outcome::failed);
  }
  if (job.next == Leg::whole) {
    const std::uint32_t rank = job.is_answered ? job.prefill_rank : job.decode_rank;
    return fleet_->at(InstanceId{event.tie()}).enqueue(id, rank, context_.now);
  }
  if (Fallible* host = fleet_->at(destination(job)).fallible()) {
    const Fallible::Reception reception = host->receive(id);
    if (reception == Fallible::Reception::is_lost) {
      if (!tries_again(id)) end_lost(id, destination(job));
      return;
    }
    job.is_held = reception == Fallible::Reception::is_held;
    if (job.is_held) return;
  }
  if (follows_step_start(id, job)) prefill_engine(job).begin_step_of_now(context_.now);
  enter_leg(id);
}

// A step of the decode instance that has just started has taken the blocks, so the leg comes after
// the steps that instances before it started at this instant.
bool Pools::follows_step_start(RequestId id, const Job& job) const {
  return sends_decode_first_ && job.next == Leg::prefill &&
         fleet_->at(job.prefill).entry_delay(id) == Time{0} &&
         std::pair(job.prefill, job.prefill_rank) < std::pair(job.decode, job.decode_rank);
}

void Pools::enter_leg(RequestId id) {
  Job& job = job_of(id);
  const bool is_prefill = job.next == Leg::prefill;
  instance::LegEngine& to = is_prefill ? prefill_engine(job) : decode_engine(job);
  // The call may end the request, or take the blocks of a decode leg.
  if (to.accepts(id, job.next)) {
    (is_prefill ? job.is_prefilling : job.has_decode_leg) = true;
    ++(is_prefill ? counts_.prefill_entered : counts_.decode_entered);
  } else if (job.leaves_when_read) {
    return end(id, Outcome::cancelled);
  }
  to.enqueue_leg(id, job.next, context_.now);
}

void Pools::first_token(RequestId id) {
  if (!job_of(id).is_answered) return run_.first_token(id);
  GatewayReplica& gateway = gateway_of(id);
  gateway.set_answers_in_prefill(true);
  run_.first_token(id);
  gateway.set_answers_in_prefill(false);
}

void Pools::prefill_ended(RequestId id) {
  Job& job = job_of(id);
  ++counts_.prefill_ended;
  job.is_prefilling = false;
  job.is_unread = true;
  if (LegColumns* columns = columns_of(id)) columns->prefill_end[id.index()] = context_.now;
  unbook_prefill(id, job, true);
  gateway_of(id).prompt_computed(id);
  if (sends_decode_first_) return begin_transfer(id);
  if (submissions_->is_prefill_only(id)) {
    submissions_->prompt_computed(id, context_.now);
    if (!submissions_->handed_off(id)) return keep(id);
  } else if (!is_prefill_first_) {
    return send(id, Leg::decode);
  }
  begin_handoff(id);
}

void Pools::begin_handoff(RequestId id) {
  job_of(id).has_prefilled = true;
  ++job_of(id).on_the_way;
  context_.events.push({context_.now + routing_latency_, Phase::routing, 0, id.value});
}

void Pools::blocks_taken(RequestId id, std::int64_t missing) {
  job_of(id).missing_blocks = missing;
  job_of(id).is_receiving = true;
  sends_decode_first_ ? send(id, Leg::prefill) : begin_transfer(id);
}

void Pools::seated(RequestId id) {
  if (LegColumns* columns = columns_of(id)) columns->decode_scheduled[id.index()] = context_.now;
}

void Pools::wasted(RequestId id, std::int64_t tokens) {
  if (LegColumns* columns = columns_of(id)) columns->wasted_tokens[id.index()] += tokens;
  if (!migrations_) return;
  std::int64_t& lost_tokens = context_.states.resumptions[id.index()].lost_tokens;
  lost_tokens = std::max(lost_tokens, tokens);
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
    job.is_moving = job.is_unread = job.has_decode_leg = job.is_receiving = false;
    ++counts_.transfers_ended;
    if (LegColumns* columns = columns_of(id)) columns->transfer_end[id.index()] = context_.now;
    move_to(id, job.decode, job.decode_rank);
    prefill_engine(job).release(id, true, context_.now);
    decode_engine(job).arrived(id, context_.now);
    load_events_->changed(job.prefill);
    load_events_->changed(job.decode);
    leave_if_read(id);
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
  if (outcome == Outcome::cancelled && reads_on(id)) return;
  if (job.on_the_way > 0 || !is_routed) {
    if (!job.leaves_as) job.leaves_as = outcome;
    return;
  }
  end(id, outcome);
}

// Nothing is to be read of a request whose prompt no instance has begun.
bool Pools::reads_on(RequestId id) {
  if (!reads_on_ || jobs_.size() <= id.index() || submissions_->is_prefill_only(id)) return false;
  Job& job = job_of(id);
  if (!job.is_prefilling && !job.is_unread) return false;
  job.leaves_when_read = true;
  return true;
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
  const bool has_failed = context_.states.outcome[id.index()] == Outcome::failed;
  if (has_failed && (job.is_lost || job.leaves_when_read)) count_loss(id, job);
  if (has_failed && migrations_) {
    context_.states.resumptions[id.index()].lost_instance =
        job.lost_instance < 0 ? context_.states.instance[id.index()] : job.lost_instance;
  }
  if (has_failed && job.is_prefilling) {
    ++losses_.prefill;
  } else {
    counts_.prefill_withdrawn += job.is_prefilling;
  }
  if (job.is_held) fleet_->at(destination(job)).fallible()->drop_held(id);
  if (job.is_waiting) retries_.withdraw(id);
  if (job.is_unplanned) gateway_of(id).count_kept(-1);
  const bool is_answered =
      job.is_answered && context_.states.outcome[id.index()] == Outcome::completed;
  if (is_answered) {
    ++counts_.answered;
    if (LegColumns* columns = columns_of(id)) columns->prefill_end[id.index()] = context_.now;
  }
  unbook_prefill(id, job, is_answered);
  unbook_decode(id, job);
  gateway_of(id).count_routed(-1);
  if (job.is_moving) {
    link_.drop(id, context_.now);
    ++counts_.transfers_cut;
    watch_link();
  }
  if (job.is_unread || job.has_decode_leg) delay_steps();
  if (job.is_unread) {
    prefill_engine(job).release(id, false, context_.now);
    load_events_->changed(job.prefill);
  }
  if (job.has_decode_leg) {
    ++(has_failed ? losses_.decode : counts_.decode_withdrawn);
    decode_engine(job).drop(id, context_.now);
    load_events_->changed(job.decode);
  }
  if (migrations_) migrations_->left(id);
}

}  // namespace spillway::cluster
