#include "gateway/pipeline.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "sim/rng.h"

namespace spillway::gateway {

using sim::RequestId;
using sim::TenantId;
using sim::Time;
using workload::Outcome;
using workload::Stage;

namespace {

LimitSet make_limits(const Gateway& config, const workload::RequestTable& requests) {
  std::vector<std::unique_ptr<LimitPolicy>> limits;
  limits.reserve(config.limit.size());
  for (const Limit& limit : config.limit) {
    limits.push_back(make_limit(limit, requests.tenants, requests.slo_classes));
  }
  return LimitSet(std::move(limits));
}

// By band, the highest priority first.
std::vector<double> ceilings_of(const Gateway& config) {
  std::vector<double> ceilings;
  for (const Band& band : by_priority(config.bands)) ceilings.push_back(band.ceiling);
  return ceilings;
}

Ceilings make_ceilings(const Gateway& config) {
  std::vector<std::int64_t> priorities;
  for (const Band& band : by_priority(config.bands)) priorities.push_back(band.priority);
  return {std::visit([&](const auto& c) { return make(c, priorities); }, config.usage_limit),
          ceilings_of(config), config.dispatch != Dispatch::all};
}

/// Permission of the limits for the next request of a band. They are asked once unless the answer
/// depends on the request: asking has no side effects.
class Permission final : public FairnessPolicy::MayStart {
 public:
  Permission(LimitSet& limits, const BandQueues& band, const workload::RequestTable& requests,
             const Occasion& occasion)
      : limits_(limits), band_(band), requests_(requests), occasion_(occasion) {}

  bool operator()(TenantId flow) const override {
    if (!limits_.depends_on_request()) return ask_once();
    return limits_.may_start({requests_, band_.head(flow)}, occasion_);
  }
  bool of_class(std::size_t, RequestId head) const override {
    if (!limits_.depends_on_request()) return any();
    return limits_.may_start({requests_, head}, occasion_);
  }
  bool any() const override { return ask_once(); }
  bool waits_for_own_limit(TenantId flow) const override {
    return limits_.is_at_own_limit({requests_, band_.head(flow)}, occasion_);
  }

 private:
  [[gnu::always_inline]] bool ask_once() const {
    if (!any_) any_ = limits_.is_open(occasion_, band_.size() > 0);
    return *any_;
  }

  LimitSet& limits_;
  const BandQueues& band_;
  const workload::RequestTable& requests_;
  const Occasion& occasion_;
  mutable std::optional<bool> any_;
};

}  // namespace

GatewayCounters& GatewayCounters::operator+=(const GatewayCounters& other) {
  attempts += other.attempts;
  admitted += other.admitted;
  rejected += other.rejected;
  expired += other.expired;
  evicted += other.evicted;
  withdrawn += other.withdrawn;
  lost += other.lost;
  lost_before += other.lost_before;
  reclaimed += other.reclaimed;
  dispatched += other.dispatched;
  ended += other.ended;
  return *this;
}

Pipeline::Pipeline(const Gateway& config, std::uint16_t replica,
                   const workload::RequestTable& requests, workload::RequestStates& states,
                   std::size_t num_instances, std::uint64_t seed, bool may_change,
                   const StepCosts& costs)
    : requests_(requests),
      states_(states),
      seed_(seed),
      chain_(make_chain(config.admission, {requests.tenants, requests.slo_classes,
                                           requests.models(), num_instances, costs})),
      bands_(config, requests),
      limits_(make_limits(config, requests)),
      ceilings_(make_ceilings(config)),
      evictor_(config.eviction),
      is_cyclic_(config.dispatch == Dispatch::one_per_cycle),
      one_per_attempt_(config.dispatch != Dispatch::all),
      counts_idle_cycles_(counts_idle_cycles(config)),
      expiry_period_(sim::from_seconds(config.expiry_period_s)),
      prepares_drains_(limits_.follow_routing() || expiry_period_ > Time{0} ||
                       ceilings_.follow_saturation()),
      heads_block_(bands_.count() > 1 || limits_.depends_on_request()),
      never_holds_(!may_change && gateway::never_holds(config, requests.tenants)),
      may_stop_others_(requests.tenants.size() > 1 && gateway::may_stop_others(config)),
      num_instances_(num_instances),
      costs_(costs),
      retry_after_(sim::from_seconds(config.retry_after_s.value_or(0))),
      dispatched_by_tenant_(requests.tenants.size()) {
  if (!is_controlled(config)) return;
  LimitPolicy* movable = limits_.movable();
  if (!movable) throw sim::ConfigError({nothing_to_move(config, "gateway")});
  control_.emplace(config, *movable, requests, replica, seed);
}

// ---- life of a request ---------------------------------------------------------------------

bool Pipeline::ask_chain(RequestId id, std::uint64_t retries, const signals::View& view, Time now) {
  sim::Draws draws(seed_, sim::Stream::admission, requests_.row(id), retries);
  const auto reason = chain_.decide({requests_, id}, view, now, draws);
  if (reason) [[unlikely]]
    reject_by_chain(id, *reason, now);
  return !reason;
}

void Pipeline::reject_by_chain(RequestId id, std::size_t reason, Time now) {
  reject(id, {Stage::admission, static_cast<std::uint8_t>(reason)});
  if (keeps_details_) {
    std::string text = chain_.detail();
    if (!text.empty()) details_[requests_.row(id)] = std::move(text);
  }
  if (states_.keeps_retry_after) set_retry_after(id, chain_.retry_after({requests_, id}, now));
}

void Pipeline::reject(RequestId id, workload::ReasonCode reason) {
  ++counters_.rejected;
  if (control_) control_->shed();
  states_.outcome[id.index()] = Outcome::rejected;
  states_.reason[id.index()] = reason;
}

void Pipeline::admitted(RequestId id, Time now) {
  chain_.commit({requests_, id}, now);
  ++counters_.admitted;
  states_.admitted[id.index()] = now;
}

Admitted Pipeline::admit(RequestId id, std::uint64_t retries, const signals::View& view, Time now) {
  departures_.clear();
  if (!chain_admits(id, retries, view, now)) return {false, departures_};
  BandQueues& band = bands_.of(id);
  Bands::Room room;
  if (!band.chooses_requests() || band.has_room(id, view)) room = bands_.make_room(id, now);
  if (!room.is_there) {
    reject(id, {Stage::queue, Queue::kFull});
    set_retry_after(id, Time{0});
    return {false, departures_};
  }
  if (room.displaced) drop(*room.displaced, Outcome::evicted, {Stage::queue, Queue::kFull}, now);
  admitted(id, now);
  states_.outcome[id.index()] = Outcome::queued;
  band.join(id, view, now);
  return {true, departures_};
}

bool Pipeline::pass(RequestId id, std::uint64_t retries, const signals::View& view, Time now) {
  if (!chain_admits(id, retries, view, now)) return false;
  admitted(id, now);
  dispatch(id, now);
  return true;
}

const Departures& Pipeline::drain(const signals::View* view, Time now) {
  departures_.clear();
  if (prepares_drains_ && !prepare_drain(view, now)) return departures_;
  for (std::size_t i = 0; i < bands_.count(); ++i) {
    BandQueues& band = bands_[i];
    if (counts_idle_cycles_ && band.size() == 0) {
      if (ends_at_empty(i, view, now)) break;
      continue;
    }
    if (!band.is_due()) continue;
    band.charge_tokens(now);
    const Occasion occasion{ceilings_.of(i), view, now};
    while (band.is_due()) {
      const Permission permission(limits_, band, requests_, occasion);
      const auto taken = band.take_next(permission, now);
      if (!taken) break;
      if (taken->is_too_late) {
        drop(taken->id, Outcome::expired, {Stage::queue, Queue::kDelay}, now);
      } else {
        dispatch(taken->id, now);
        departures_.dispatched.push_back(taken->id);
        if (one_per_attempt_ || limits_.follow_routing()) return departures_;
      }
    }
    // A blocked band blocks the bands below it: their requests are less important.
    if (band.size() > 0 && !(limits_.has_own_limits() && waits_for_own_limits(band, occasion))) {
      reclaim(i, view, now);
      if (may_stop_others_ && !has_stopped_others_) {
        has_stopped_others_ = stops_others(i, view, now);
      }
      break;
    }
  }
  return departures_;
}

bool Pipeline::prepare_drain(const signals::View* view, Time now) {
  if (unrouted_ > 0 && limits_.follow_routing()) return false;
  if (expiry_period_ > Time{0} && now.ns % expiry_period_.ns == 0) drop_expired(now);
  if (ceilings_.follow_saturation() && (counters_.queued() > 0 || is_cyclic_)) {
    ceilings_.follow(limits_.saturation(view, now));
  }
  return true;
}

bool Pipeline::ends_at_empty(std::size_t band, const signals::View* view, Time now) {
  if (!limits_.is_open({ceilings_.of(band), view, now}, false)) return true;
  bands_[band].found_empty();
  return false;
}

void Pipeline::dispatch(RequestId id, Time now) {
  const signals::RequestView request(requests_, id);
  if (!never_holds_) limits_.started(request);
  chain_.dispatched(request, now);
  if (evictor_.is_on()) evictor_.dispatched(id, request.priority());
  ++counters_.dispatched;
  ++unrouted_;
  ++dispatched_by_tenant_[request.tenant()];
  peak_in_flight_ = std::max(peak_in_flight_, counters_.in_flight());
  states_.dispatched[id.index()] = now;
  states_.outcome[id.index()] = Outcome::in_transit;
  if (control_) control_->dispatched(request, counters_.in_flight(), now);
}

void Pipeline::drop(RequestId id, Outcome outcome, workload::ReasonCode reason, Time now) {
  if (outcome == Outcome::cancelled) {
    ++counters_.withdrawn;
  } else if (outcome == Outcome::failed) {
    ++counters_.lost;
  } else {
    ++(outcome == Outcome::evicted ? counters_.evicted : counters_.expired);
    if (control_) control_->shed();
  }
  states_.outcome[id.index()] = outcome;
  states_.reason[id.index()] = reason;
  if (outcome != Outcome::cancelled && outcome != Outcome::failed) set_retry_after(id, Time{0});
  chain_.finished({requests_, id}, outcome, now);
  departures_.dropped.push_back(id);
}

bool Pipeline::waits_for_own_limits(const BandQueues& band, const Occasion& occasion) const {
  return std::ranges::all_of(band.backlogged(), [&](TenantId tenant) {
    return limits_.is_at_own_limit({requests_, band.head(tenant)}, occasion);
  });
}

bool Pipeline::stops_others(std::size_t band, const signals::View* view, Time now) const {
  const Occasion here{ceilings_.of(band), view, now};
  const auto is_held = [&](TenantId tenant) {
    return limits_.is_at_own_limit({requests_, bands_[band].head(tenant)}, here);
  };
  if (std::ranges::none_of(bands_[band].backlogged(), is_held)) return false;
  for (std::size_t i = band; i < bands_.count(); ++i) {
    const Occasion occasion{ceilings_.of(i), view, now};
    for (const TenantId tenant : bands_[i].backlogged()) {
      if (limits_.would_start({requests_, bands_[i].head(tenant)}, occasion)) return true;
    }
  }
  return false;
}

void Pipeline::reclaim(std::size_t band, const signals::View* view, Time now) {
  if (!evictor_.is_on() || band + 1 == bands_.count()) return;
  const double saturation = limits_.saturation(view, now);
  if (saturation < ceilings_.of(band)) return;
  evictor_.relieve({.saturation = saturation,
                    .ceiling = ceilings_.of(band),
                    .in_flight = counters_.in_flight(),
                    .below = std::min<std::int64_t>(bands_[band].priority(), 0)},
                   now, departures_.evicted);
}

const Departures& Pipeline::withdraw(RequestId id, workload::ReasonCode reason, Time now) {
  departures_.clear();
  bands_.of(id).withdraw(id, now);
  drop(id, Outcome::cancelled, reason, now);
  return departures_;
}

const Departures& Pipeline::lose(RequestId id, Time now) {
  departures_.clear();
  if (states_.outcome[id.index()] == Outcome::queued) {
    bands_.of(id).withdraw(id, now);
    drop(id, Outcome::failed, workload::kGatewayLost, now);
    return departures_;
  }
  ++counters_.lost_before;
  states_.outcome[id.index()] = Outcome::failed;
  states_.reason[id.index()] = workload::kGatewayLost;
  departures_.dropped.push_back(id);
  return departures_;
}

bool Pipeline::first_token(RequestId id, sim::InstanceId instance, Time entered_engine, Time now) {
  const signals::RequestView request(requests_, id);
  limits_.first_token(request);
  chain_.first_token(request, instance, now);
  bands_.of(id).first_token(id, now);
  if (control_) {
    control_->first_token(request, states_.dispatched[id.index()], entered_engine, now);
  }
  return limits_.frees_at_first_token() && counters_.queued() > 0;
}

bool Pipeline::release(RequestId id, Outcome outcome, Time now) {
  ++counters_.ended;
  if (evictor_.is_on()) evictor_.ended(id, now);
  if (outcome == Outcome::evicted) {
    ++counters_.reclaimed;
    states_.reason[id.index()] = {Stage::queue, Queue::kInFlight};
  }
  const signals::RequestView request(requests_, id);
  if (!never_holds_) {
    limits_.ended(request);
    bands_.of(id).ended(id, outcome == Outcome::completed, now);
  }
  chain_.finished(request, outcome, now);
  if (control_) control_->ended(request, outcome, states_.dispatched[id.index()], now);
  return bands_.are_due();
}

// ---- timers --------------------------------------------------------------------------------

Time Pipeline::next_timeout() {
  if (expiry_period_ > Time{0}) [[unlikely]]
    return next_sweep();
  return bands_.next_timeout();
}

Time Pipeline::next_sweep() {
  const Time next = bands_.next_timeout();
  if (next == sim::kForever) return next;
  const std::int64_t periods = (next + expiry_period_ - Time{1}).ns / expiry_period_.ns;
  return Time{periods * expiry_period_.ns};
}

const Departures& Pipeline::expire(Time now) {
  departures_.clear();
  drop_expired(now);
  return departures_;
}

void Pipeline::drop_expired(Time now) {
  while (const auto expired = bands_.take_expired(now)) {
    drop(*expired, Outcome::expired, {Stage::queue, Queue::kTimeout}, now);
  }
}

void Pipeline::change(const Gateway& from, const Gateway& to, const TenantChange& tenants,
                      Time now) {
  chain_.change(from.admission, to.admission,
                {tenants.to, requests_.slo_classes, requests_.models(), num_instances_, costs_},
                tenants.are_new, now);
  bands_.change(from, to, tenants, now);
  limits_.change(from.limit, to.limit, tenants.to, tenants.are_new);
  ceilings_.change(ceilings_of(to));
  if (control_) control_->change(from, to);
}

void Pipeline::tick(const signals::View* view, Time now) {
  if (control_) control_->tick(counters_.in_flight(), counters_.queued(), view, now);
}

Time Pipeline::ticks_settled_until(bool is_fleet_steady) const {
  if (!control_ || counters_.present() > 0) return Time{0};
  if (control_->reads_fleet() && !is_fleet_steady) return Time{0};
  return control_->settled_until();
}

// ---- state ---------------------------------------------------------------------------------

std::span<const ControlRecord> Pipeline::control_log() const {
  if (!control_) return {};
  return control_->log();
}

bool Pipeline::waits_for_event(const signals::View* view, Time now) const {
  if (ceilings_.follow_saturation() || evictor_.is_on() || limits_.has_own_limits()) return false;
  const auto first = bands_.first_waiting();
  return first && limits_.is_shut({ceilings_.of(*first), view, now});
}

}  // namespace spillway::gateway
