#include "cluster/fleet.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <variant>

#include "router/router.h"
#include "sim/phase.h"

namespace spillway::cluster {

using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

std::unique_ptr<signals::Scrapes> make_scrapes(const Context& context) {
  const auto* scraped = std::get_if<signals::Scraped>(&context.simulation.signals);
  if (!scraped) return nullptr;
  return std::make_unique<signals::Scrapes>(*scraped, num_instances(context.simulation),
                                            context.seed);
}

// Old readings change without a change of the instance, and the router of a pool sees some
// instances. A log of decisions needs all scores. A
// reference run follows nothing, so comparison with it shows that the choices are the same.
signals::Follows follows_of(const Simulation& simulation, bool reference) {
  const bool may_follow = std::holds_alternative<signals::Live>(simulation.signals) &&
                          simulation.metrics.traced_candidates == 0 && !reference &&
                          !has_pools(simulation) && !has_models(simulation) &&
                          !has_migration(simulation) && !has_hedges(simulation);
  return may_follow ? router::follows_of(simulation.router) : signals::Follows::nothing;
}

// The pools, where no instance is in both, or the fleet as a whole.
fleet::FleetState state_of(const Simulation& simulation) {
  if (!has_separate_pools(simulation)) return {simulation.fleet, num_instances(simulation)};
  return {simulation.fleet, instances_of(simulation, instance::Role::prefill),
          instances_of(simulation, instance::Role::decode)};
}

std::vector<fleet::Resizer> resizers_of(const Simulation& simulation) {
  const fleet::Fleet& fleet = simulation.fleet;
  if (!has_separate_pools(simulation)) return {{fleet.target_instances, fleet.autoscaler, 0}};
  return {{fleet.prefill.target_instances, fleet.prefill.autoscaler, 0},
          {fleet.decode.target_instances, fleet.decode.autoscaler, 1}};
}

// What a fleet that is resized as a whole scales, then what each of two pools does.
constexpr std::array kScaled{fleet::Scaled::all, fleet::Scaled::prefill, fleet::Scaled::decode};

std::optional<signals::LoadChanges> make_load_changes(const Context& context,
                                                      signals::Follows follows) {
  if (follows == signals::Follows::nothing) return std::nullopt;
  return signals::LoadChanges(num_instances(context.simulation));
}

}  // namespace

Fleet::Fleet(Context& context, workload::RequestListener& listener, bool reference,
             std::vector<instance::StepLog>* step_logs, instance::LegListener* legs)
    : context_(context),
      listener_(listener),
      state_(state_of(context.simulation)),
      resizers_(resizers_of(context.simulation)),
      scrapes_(make_scrapes(context)),
      follows_(follows_of(context.simulation, reference)),
      load_changes_(make_load_changes(context, follows_)),
      signal_store_(context.simulation.signals,
                    make_instances(listener, reference, step_logs, legs), scrapes_.get(),
                    load_changes_ ? &*load_changes_ : nullptr),
      emitted_(context.requests.num_groups()) {
  if (context.needs.exact_estimate) {
    exact_estimator_.emplace(instances_);
    signal_store_.set_exact_estimator(&*exact_estimator_);
  }
  const fleet::Fleet& fleet = context.simulation.fleet;
  if (std::ranges::any_of(
          std::array{&fleet.autoscaler, &fleet.prefill.autoscaler, &fleet.decode.autoscaler},
          [](const auto* scaler) { return fleet::reads_latencies(*scaler); })) {
    latency_estimates_ = std::make_unique<LatencyEstimates>(context.simulation);
  }
  note_ready();
  if (has_faults(context.simulation)) {
    health_ = std::make_unique<Health>(context, instances_, state_);
  }
  const auto& groups = context.simulation.instances;
  // Of two copies whose first tokens have come, the client keeps one, at whatever server.
  if (std::ranges::none_of(groups, &instance::InstanceGroup::notices_late) &&
      !has_hedges(context.simulation)) {
    return;
  }
  for (const instance::InstanceGroup& group : groups) {
    const std::optional<double>& delay_s = group.notices_departure_after_s;
    notice_delays_.insert(notice_delays_.end(), static_cast<std::size_t>(group.count),
                          delay_s ? sim::from_seconds(*delay_s) : sim::kForever);
  }
  in_vain_.resize(notice_delays_.size());
}

std::optional<double> Fleet::cost(Time end) const {
  std::optional<double> sum;
  std::size_t next = 0;
  for (const instance::InstanceGroup& group : context_.simulation.instances) {
    for (std::int64_t i = 0; i < group.count; ++i, ++next) {
      if (group.cost_per_hour == 0) continue;
      const Time served = state_.in_service(InstanceId{next}, end);
      sum = sum.value_or(0) + group.cost_per_hour * sim::to_seconds(served) / 3600;
    }
  }
  return sum;
}

void Fleet::ended_in_vain(RequestId id, workload::Outcome outcome) {
  if (outcome == workload::Outcome::completed) completed_in_vain(id);
  if (outcome == workload::Outcome::failed) lost_in_vain(id);
}

// In KV memory there was all but the last token.
void Fleet::completed_in_vain(RequestId id) {
  context_.states.outcome[id.index()] = workload::Outcome::cancelled;
  InVain& here = in_vain_[context_.instance_of(id).index()];
  ++here.requests;
  here.tokens += std::int64_t{context_.requests.input_tokens(id)} +
                 context_.requests.target_output_tokens(id) - 1;
}

void Fleet::lost_in_vain(RequestId id) {
  context_.states.outcome[id.index()] = workload::Outcome::cancelled;
  const bool has_entered = sim::is_set(context_.states.enqueued[id.index()]);
  in_vain_[context_.instance_of(id).index()].lost += has_entered;
}

std::vector<signals::SignalSource*> Fleet::make_instances(workload::RequestListener& listener,
                                                          bool reference,
                                                          std::vector<instance::StepLog>* step_logs,
                                                          instance::LegListener* legs) {
  const Simulation& simulation = context_.simulation;
  if (step_logs) step_logs->resize(num_engines(simulation));
  const instance::Environment environment{
      .requests = context_.requests,
      .states = context_.states,
      .events = context_.events,
      .listener = listener,
      .seed = context_.seed,
      .scrapes = scrapes_.get(),
      .quantum_ns = simulation.quantum_ns,
      .reports_latencies = simulation.metrics.uses_reported_latencies(),
      .notifies_first_tokens =
          context_.needs.first_tokens || context_.follows_loads || has_hedges(simulation),
      .meters_tokens = context_.needs.tokens_by_group || context_.counts_tenants,
      .reference = reference,
      .step_logs = step_logs,
      .legs = legs,
      .may_fail = has_faults(simulation),
      .swallows = simulation.fleet.health.undetected == fleet::AtDeadInstance::swallowed};
  std::vector<signals::SignalSource*> instances;
  instances.reserve(num_instances(simulation));
  for (const auto& group : simulation.instances) {
    for (std::int64_t i = 0; i < group.count; ++i) {
      const InstanceId id{instances_.size()};
      instances_.push_back(make(group, id, environment, engines_));
      instance_of_engine_.resize(engines_.size(), id);
      instance::Fallible* fallible = instances_.back()->fallible();
      instances.push_back(fallible ? static_cast<signals::SignalSource*>(&fallible->reported())
                                   : instances_.back().get());
    }
  }
  return instances;
}

void Fleet::send(RequestId id, router::Target target) {
  workload::RequestStates& states = context_.states;
  const InstanceId chosen = target.instance;
  states.instance[id.index()] = static_cast<std::int32_t>(chosen.value);
  if (states.has_ranks) {
    states.rank[id.index()] = static_cast<std::int16_t>(target.rank);
    at(chosen).sent(target.rank);
  }
  note_change(chosen);
  const Time entry =
      context_.now + std::max(at(chosen).entry_delay(id), state_.serves_at(chosen) - context_.now);
  note_prompt(chosen, context_.requests.input_tokens(id));
  if (exact_estimator_ && !context_.requests.fails(id)) exact_estimator_->sent(id, chosen, entry);
  context_.events.push(
      {entry, Phase::ingress, chosen.value, instance::IngressSubject::entry_of(id)});
}

std::optional<RequestId> Fleet::enter(const sim::Event& event) {
  instance::Instance& instance = at(InstanceId{event.tie()});
  const auto id = instance::IngressSubject(event.subject()).request();
  if (!id) {
    instance.admit_waiting(context_.now);
    note_change(InstanceId{event.tie()});
    return std::nullopt;
  }
  if (context_.requests.fails(*id)) {
    std::erase(pending_evictions_, *id);
    fail(*id);
    return id;
  }
  instance.enqueue(*id, context_.states.rank_of(*id), context_.now);
  note_change(InstanceId{event.tie()});
  if (std::erase(pending_evictions_, *id) > 0) {
    if (context_.states.resumes) context_.states.resumptions[id->index()].gives_up = true;
    cancel(*id, workload::Outcome::evicted);
  }
  return id;
}

// As an instance refuses a request, but the instance does not know of it.
void Fleet::fail(RequestId id) {
  context_.states.outcome[id.index()] = workload::Outcome::failed;
  listener_.finished(id);
  const auto first = std::ranges::lower_bound(instance_of_engine_, context_.instance_of(id).value,
                                              {}, &InstanceId::value);
  const auto engine = static_cast<std::uint32_t>(first - instance_of_engine_.begin());
  context_.events.push({context_.now, Phase::permit_release, engine, id.value});
}

void Fleet::cancel(RequestId id, workload::Outcome outcome) {
  at(context_.instance_of(id)).cancel(id, context_.states.rank_of(id), outcome, context_.now);
}

void Fleet::evict(RequestId id) {
  const workload::Outcome outcome = context_.states.outcome[id.index()];
  if (outcome == workload::Outcome::running) cancel(id, workload::Outcome::evicted);
  if (outcome == workload::Outcome::in_transit) pending_evictions_.push_back(id);
}

void Fleet::released(RequestId id, workload::Outcome outcome) {
  const bool is_cut = outcome == workload::Outcome::failed &&
                      workload::is_gateway_lost(context_.states.reason[id.index()]) &&
                      context_.states.instance[id.index()] >= 0;
  if (outcome != workload::Outcome::cancelled && outcome != workload::Outcome::evicted && !is_cut) {
    return;
  }
  context_.events.push({context_.now, Phase::ingress, context_.instance_of(id).value,
                        instance::IngressSubject::place_became_free()});
}

void Fleet::set_targets(const Targets& targets) {
  if (!targets.are_stated()) return;
  if (targets.fleet) resizers_.front().set_target(*targets.fleet);
  if (targets.prefill) resizers_.front().set_target(*targets.prefill);
  if (targets.decode) resizers_.back().set_target(*targets.decode);
  schedule_resize();
}

std::vector<fleet::InstanceLoad> Fleet::reports(std::size_t pool) {
  std::vector<fleet::InstanceLoad> reports;
  for (const InstanceId id : state_.ready(pool)) {
    const signals::InstanceSignal reported = seen(id);
    const signals::Capacity capacity = at(id).capacity();
    const std::int64_t kv_tokens = capacity.num_kv_blocks * capacity.block_size_tokens;
    reports.push_back({.waiting = static_cast<double>(reported.waiting),
                       .running = static_cast<double>(reported.running),
                       .kv_utilization = reported.kv_utilization,
                       .prefill_tokens = static_cast<double>(reported.prefill_tokens),
                       .max_num_seqs = static_cast<double>(capacity.max_num_seqs),
                       .kv_capacity_tokens = static_cast<double>(kv_tokens)});
    if (!latency_estimates_) continue;
    at(id).read(context_.now);  // brings the counters up to now
    latency_estimates_->estimate(id, reported, counters(id),
                                 kScaled.at(pool + resizers_.size() - 1), reports.back());
  }
  return reports;
}

bool Fleet::resize(fleet::FleetLoad load) {
  if (next_event_ <= context_.now) next_event_ = sim::kForever;
  for (std::size_t pool = 0; pool < resizers_.size(); ++pool) {
    fleet::Resizer& resizer = resizers_[pool];
    load.scaled = kScaled.at(pool + resizers_.size() - 1);
    load.instances.clear();
    if (resizer.reads_reports(context_.now)) load.instances = reports(pool);
    resizer.apply(state_, context_.now, load, most_instances(pool));
  }
  const bool has_changed = state_.update(context_.now);
  note_ready();
  return has_changed;
}

bool Fleet::change_health(const sim::Event& event, bool continues) {
  note_change(health_->handle(event, continues));
  const bool has_changed = state_.update(context_.now);
  note_ready();
  return has_changed;
}

Time Fleet::skip_polls(Time until) {
  fleet::Resizer& resizer = resizers_.front();
  const Time period = resizer.poll_period();
  const std::int64_t polls = periods_to_skip(resizer.next() - period, period, until);
  if (polls > 0) resizer.skip(polls);
  return Time{polls * period.ns};
}

// What the autoscaler of a pool may add up to.
std::int64_t Fleet::most_instances(std::size_t pool) const {
  const auto& budget = context_.simulation.fleet.max_pool_instances;
  if (!budget) return std::numeric_limits<std::int64_t>::max();
  std::int64_t most = *budget;
  for (std::size_t i = 0; i < state_.num_pools(); ++i) most -= i == pool ? 0 : state_.started(i);
  return most;
}

Time Fleet::next_resize() const {
  Time next = state_.next_ready();
  for (const fleet::Resizer& resizer : resizers_) next = std::min(next, resizer.next());
  return next;
}

void Fleet::schedule_resize() {
  const Time next = std::max(next_resize(), context_.now);
  if (next >= next_event_) return;
  next_event_ = next;
  context_.events.push({next, Phase::fleet_change, 0, 0});
}

void Fleet::note_ready() {
  has_workers_ = num_ready() > 0;
  const bool is_whole_fleet = state_.ready().size() == instances_.size();
  signal_store_.set_ready(is_whole_fleet ? std::span<const InstanceId>() : state_.ready(),
                          num_ready() > 0);
  if (load_changes_) load_changes_->add_all();
  if (has_models(context_.simulation)) note_ready_by_model();
}

void Fleet::note_ready_by_model() {
  std::vector<const std::vector<std::string>*> served;
  for (const instance::InstanceGroup& group : context_.simulation.instances) {
    served.insert(served.end(), static_cast<std::size_t>(group.count), &group.models);
  }
  ready_for_.clear();
  for (const std::string& model : context_.requests.models()) {
    std::vector<InstanceId>& ready = ready_for_.emplace_back();
    for (const InstanceId id : state_.ready()) {
      const std::vector<std::string>& models = *served[id.index()];
      const bool serves =
          model.empty() || models.empty() || std::ranges::find(models, model) != models.end();
      if (serves && num_ready() > 0) ready.push_back(id);
    }
  }
}

const std::vector<std::int64_t>& Fleet::emitted(Time now) {
  std::fill(emitted_.begin(), emitted_.end(), 0);
  for (const auto& instance : instances_) instance->add_emitted(emitted_, now);
  return emitted_;
}

std::vector<std::size_t> Fleet::ranks() const {
  std::vector<std::size_t> ranks;
  ranks.reserve(instances_.size());
  for (const auto& instance : instances_) ranks.push_back(instance->num_ranks());
  return ranks;
}

void Fleet::add_to(metrics::Sample& state, std::span<metrics::TenantSample> tenants) {
  state.ready_instances = num_ready();
  for (const auto& instance : instances_) {
    const signals::InstanceSignal seen = instance->read(context_.now);
    state.waiting += seen.waiting;
    state.running += seen.running;
    state.kv_utilization += seen.kv_utilization / static_cast<double>(instances_.size());
  }
  const std::vector<std::int64_t>& by_group = emitted(context_.now);
  const std::size_t classes = context_.requests.slo_classes.size();
  for (std::size_t group = 0; group < by_group.size(); ++group) {
    tenants[group / classes].emitted_tokens += by_group[group];
  }
}

void Fleet::note_emitted(Time now) {
  for (const auto& instance : instances_) instance->note_emitted(now);
}

Time Fleet::next_token(Time now) {
  Time next = sim::kForever;
  for (const auto& instance : instances_) next = std::min(next, instance->next_token(now));
  return next;
}

instance::Counters Fleet::counters(InstanceId id) {
  instance::Instance& instance = at(id);
  if (instance.num_ranks() == 1) return instance.counters();
  instance::Counters sum;
  for (std::size_t i = 0; i < instance.num_ranks(); ++i) sum += instance.rank(i).counters();
  return sum;
}

void Fleet::close(Time end) {
  for (const auto& instance : instances_) instance->close(end);
  if (health_) health_->close();
  context_.states.token_gaps.close();
}

}  // namespace spillway::cluster
