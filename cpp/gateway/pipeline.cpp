#include "gateway/pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "sim/names.h"
#include "sim/rng.h"

namespace spillway::gateway {

using sim::RequestId;
using sim::TenantId;
using sim::Time;
using workload::Outcome;

Books& Books::operator+=(const Books& other) {
  attempts += other.attempts;
  admitted += other.admitted;
  rejected += other.rejected;
  expired += other.expired;
  evicted += other.evicted;
  withdrawn += other.withdrawn;
  reclaimed += other.reclaimed;
  dispatched += other.dispatched;
  ended += other.ended;
  return *this;
}

/// Asks the limits on behalf of a band.
class Pipeline::Permission final : public FairnessPolicy::MayStart {
 public:
  Permission(Pipeline& pipeline, const BandState& band, const signals::View* view, Time now)
      : pipeline_(pipeline), band_(band), occasion_{band.ceiling, view, now} {}

  bool operator()(TenantId flow) const override {
    const signals::RequestView request(pipeline_.requests_, band_.queues.head(flow).request);
    return all_allow([&](const LimitPolicy& limit) { return limit.may_start(request, occasion_); });
  }
  bool anyone() const override {
    return all_allow([&](const LimitPolicy& limit) { return limit.is_open(occasion_); });
  }
  Time now() const { return occasion_.now; }

 private:
  bool all_allow(const auto& allows) const {
    for (std::size_t i = 0; i < pipeline_.limits_.size(); ++i) {
      if (allows(*pipeline_.limits_[i])) continue;
      if (band_.queues.size() > 0) pipeline_.has_held_[i] = 1;
      return false;
    }
    return true;
  }

  Pipeline& pipeline_;
  const BandState& band_;
  Occasion occasion_;
};

Pipeline::Pipeline(const Gateway& config, std::uint16_t replica,
                   const workload::RequestTable& requests, workload::Journal& journal,
                   std::size_t num_instances, std::uint64_t seed)
    : requests_(requests),
      journal_(journal),
      seed_(seed),
      replica_(replica),
      chain_(make_chain(config.admission, {requests.tenants, requests.slo_classes, num_instances})),
      evictor_(config.eviction),
      max_queued_(config.max_queued),
      sheds_(config.queue_shedding),
      one_per_attempt_(config.dispatch == Dispatch::one_per_attempt),
      heads_block_(config.bands.size() > 1),
      reads_fleet_at_ticks_(
          (config.sensor.needs() | signals::needs_of(config.controller)).fleet_signals),
      source_(config.sensor.source),
      samples_refusals_(config.sensor.includes_refusals),
      sensor_(config.sensor, requests.tenants.size(),
              sim::index_of_name(requests.tenants, config.sensor.tenant)) {
  std::vector<double> weights;
  weights.reserve(requests.tenants.size());
  for (const workload::Tenant& tenant : requests.tenants) weights.push_back(tenant.weight);
  std::vector<Band> by_priority = config.bands;
  std::sort(by_priority.begin(), by_priority.end(),
            [](const Band& a, const Band& b) { return a.priority > b.priority; });
  for (const Band& band : by_priority) {
    const Cost* cost = cost_of(band.fairness);
    bands_.push_back(
        {.priority = band.priority,
         .ceiling = band.ceiling,
         .max_of_tenant = band.queue.max_requests,
         .max_requests = band.max_requests,
         .fairness = std::visit([&](const auto& c) { return make(c, weights); }, band.fairness),
         .charging = cost ? std::optional<Charging>(std::in_place, *cost, requests) : std::nullopt,
         .queues = TenantQueues(requests.tenants.size(), band.queue),
         .tokens_charged = std::vector<std::int64_t>(requests.num_groups())});
  }
  make_usage_limit(config.usage_limit);
  dispatched_by_tenant_.resize(requests.tenants.size());
  for (std::size_t k = 0; k < requests.slo_classes.size(); ++k) {
    band_of(requests.slo_classes[k]).classes.push_back(k);
  }
  for (const Limit& limit : config.limit) limits_.push_back(make_limit(limit, requests.tenants));
  for (const auto& limit : limits_) {
    heads_block_ = heads_block_ || limit->depends_on_request();
    frees_at_first_token_ = frees_at_first_token_ || limit->frees_at_first_token();
  }
  has_held_.resize(limits_.size());
  if (!is_controlled(config)) return;
  const auto movable = std::find_if(limits_.begin(), limits_.end(),
                                    [](const auto& limit) { return limit->setting().has_value(); });
  controlled_ = movable->get();
  governor_ = std::make_unique<Governor>(config.guard, config.controller,
                                         controlled_->setting().value_or(0), seed);
}

// ---- the way of a request ------------------------------------------------------------------

Pipeline::BandState& Pipeline::band_of(const workload::SloClass& slo_class) {
  for (BandState& band : bands_) {
    if (slo_class.priority >= band.priority) return band;
  }
  return bands_.back();
}

Admitted Pipeline::admit(RequestId id, std::uint64_t retries, const signals::View& view, Time now) {
  departures_.clear();
  const signals::RequestView request(requests_, id);
  sim::Draws draws(seed_, sim::Stream::admission, requests_.row(id), retries);
  const auto reject = [&](workload::Stage stage, std::size_t reason) {
    ++books_.rejected;
    ++shed_;
    journal_.outcome[id.index()] = Outcome::rejected;
    journal_.reason[id.index()] = {stage, static_cast<std::uint8_t>(reason)};
    return Admitted{false, departures_};
  };
  if (const auto reason = chain_.decide(request, view, now, draws)) {
    return reject(workload::Stage::admission, *reason);
  }
  BandState& band = band_of(id);
  if (!has_room(band, id, now)) return reject(workload::Stage::queue, Queue::kFull);
  chain_.commit(request, now);

  ++books_.admitted;
  journal_.admitted[id.index()] = now;
  journal_.outcome[id.index()] = Outcome::queued;
  const TenantId tenant{requests_.tenant(id)};
  const workload::SloClass& slo_class = requests_.class_of(id);
  TenantQueues::Entry entry{.request = id, .entered = now, .priority = slo_class.priority};
  if (band.queues.needs_deadlines() && slo_class.target_ttft_s) {
    entry.deadline = requests_.arrival(id) + sim::from_seconds(*slo_class.target_ttft_s);
  }
  if (band.charging) {
    band.charging->estimate(request, view);
    entry.cost = band.charging->at_dispatch(id);
  }
  // Where a flow stands among the others when it joins depends on what they have been served.
  if (band.queues.length(tenant) == 0) charge_tokens(band, now);
  band.queues.push(tenant, entry);
  band.fairness->joined(tenant, band.queues, now);
  if (band.charging) {
    charge(band, tenant, band.charging->at_enqueue(id), now);
  }
  return {true, departures_};
}

bool Pipeline::has_room(BandState& band, RequestId id, Time now) {
  const TenantId tenant{requests_.tenant(id)};
  const auto& own = requests_.tenants[tenant.index()].queue_max;
  const auto& most = own ? own : band.max_of_tenant;
  const std::int64_t priority = requests_.class_of(id).priority;
  if (most && std::cmp_greater_equal(band.queues.length(tenant), *most)) {
    const auto removed = band.queues.make_room(tenant, priority);
    if (!removed) return false;
    // Its place is one in the band and in the gateway, too.
    lose(band, *removed, Outcome::evicted, {workload::Stage::queue, Queue::kFull}, now);
    return true;
  }
  if (band.max_requests && std::cmp_greater_equal(band.queues.size(), *band.max_requests)) {
    return false;
  }
  if (!max_queued_ || books_.queued() < *max_queued_) return true;
  return sheds_ && displace(priority, now);
}

bool Pipeline::displace(std::int64_t priority, Time now) {
  // The least important ones are in the lowest band.
  const auto lowest = std::find_if(bands_.rbegin(), bands_.rend(),
                                   [](const BandState& band) { return band.queues.size() > 0; });
  if (lowest == bands_.rend()) return false;
  const auto removed = lowest->queues.take_least(std::min<std::int64_t>(priority, 0));
  if (!removed) return false;
  lose(*lowest, *removed, Outcome::evicted, {workload::Stage::queue, Queue::kFull}, now);
  return true;
}

void Pipeline::lose(BandState& band, TenantQueues::Removed removed, Outcome outcome,
                    workload::ReasonCode reason, Time now) {
  const RequestId id = removed.request;
  if (outcome == Outcome::cancelled) {
    ++books_.withdrawn;
  } else {
    ++(outcome == Outcome::evicted ? books_.evicted : books_.expired);
    ++shed_;
  }
  journal_.outcome[id.index()] = outcome;
  journal_.reason[id.index()] = reason;
  band.fairness->left(removed.flow, band.queues, now);
  if (band.charging) {
    charge(band, removed.flow, band.charging->refund(id), now);
  }
  chain_.finished({requests_, id}, outcome, now);
  departures_.dropped.push_back(id);
}

const Departures& Pipeline::withdraw(RequestId id, workload::ReasonCode reason, Time now) {
  departures_.clear();
  BandState& band = band_of(id);
  const auto removed = band.queues.withdraw(TenantId{requests_.tenant(id)}, id);
  lose(band, removed, Outcome::cancelled, reason, now);
  return departures_;
}

const Departures& Pipeline::drain(const signals::View* view, Time now) {
  departures_.clear();
  const auto is_done = [&] { return one_per_attempt_ && !departures_.dispatched.empty(); };
  set_ceilings(view, now);
  for (BandState& band : bands_) {
    if (band.queues.size() == 0 && !band.fairness->drains_when_empty()) continue;
    charge_tokens(band, now);
    const Permission permission(*this, band, view, now);
    while (dispatch_from(band, permission) && !is_done() &&
           (band.queues.size() > 0 || band.fairness->drains_when_empty())) {
    }
    if (is_done()) break;
    // A blocked band blocks the bands below it: their requests are less important.
    if (band.queues.size() > 0) {
      reclaim(band, view, now);
      break;
    }
  }
  return departures_;
}

void Pipeline::make_usage_limit(const UsageLimit& config) {
  std::vector<std::int64_t> priorities;
  for (const BandState& band : bands_) {
    priorities.push_back(band.priority);
    ceilings_.push_back(band.ceiling);
  }
  usage_limit_ = std::visit([&](const auto& c) { return make(c, priorities); }, config);
  if (!usage_limit_->follows_saturation()) usage_limit_->set_ceilings(0, ceilings_);
  // The cycle of llm-d stops at a band past its ceiling also where nobody waits there.
  for (std::size_t i = 1; one_per_attempt_ && i < ceilings_.size(); ++i) {
    ceilings_[i] = std::min(ceilings_[i], ceilings_[i - 1]);
  }
  for (std::size_t i = 0; i < bands_.size(); ++i) bands_[i].ceiling = ceilings_[i];
}

void Pipeline::set_ceilings(const signals::View* view, Time now) {
  if (!usage_limit_->follows_saturation() || books_.queued() == 0) return;
  usage_limit_->set_ceilings(saturation(view, now), ceilings_);
  for (std::size_t i = 0; i < bands_.size(); ++i) bands_[i].ceiling = ceilings_[i];
}

double Pipeline::saturation(const signals::View* view, Time now) const {
  double highest = 0;
  for (const auto& limit : limits_) {
    highest = std::max(highest, limit->saturation({.view = view, .now = now}).value_or(0));
  }
  return highest;
}

void Pipeline::reclaim(const BandState& band, const signals::View* view, Time now) {
  if (!evictor_.is_on() || &band == &bands_.back()) return;
  const double saturated = saturation(view, now);
  if (saturated < band.ceiling) return;
  evictor_.relieve({.saturation = saturated,
                    .ceiling = band.ceiling,
                    .in_flight = books_.in_flight(),
                    .below = std::min<std::int64_t>(band.priority, 0)},
                   now, departures_.evicted);
}

bool Pipeline::is_stuck(const signals::View* view, Time now) const {
  if (usage_limit_->follows_saturation() || evictor_.is_on()) return false;
  const auto first = std::find_if(bands_.begin(), bands_.end(),
                                  [](const BandState& band) { return band.queues.size() > 0; });
  if (first == bands_.end()) return false;
  const Occasion occasion{first->ceiling, view, now};
  return std::any_of(limits_.begin(), limits_.end(), [&](const auto& limit) {
    return !limit->follows_signals() && !limit->is_open(occasion);
  });
}

void Pipeline::charge(BandState& band, TenantId tenant, double amount, Time now) {
  if (amount != 0) band.fairness->charge(tenant, amount, now);
}

// What tenants have been served since they were charged last.
void Pipeline::charge_tokens(BandState& band, Time now) {
  if (!meter_ || !band.charging || !band.charging->charges_tokens()) return;
  const std::vector<std::int64_t>& emitted = meter_->emitted(now);
  const std::size_t num_classes = requests_.slo_classes.size();
  for (std::size_t i = 0; i < requests_.tenants.size(); ++i) {
    std::int64_t tokens = 0;
    for (const std::size_t slo_class : band.classes) {
      const std::size_t group = i * num_classes + slo_class;
      tokens += emitted[group] - band.tokens_charged[group];
      band.tokens_charged[group] = emitted[group];
    }
    if (tokens == 0) continue;
    band.fairness->charge(TenantId{i}, band.charging->per_token() * static_cast<double>(tokens),
                          now);
  }
}

bool Pipeline::dispatch_from(BandState& band, const Permission& permission) {
  const Time now = permission.now();
  const auto flow = band.fairness->next(band.queues, permission, now);
  if (!flow) return false;
  const bool is_too_late = band.queues.is_too_late(*flow, now);
  const RequestId id = band.queues.pop(*flow);
  if (is_too_late) {
    lose(band, {*flow, id}, Outcome::expired, {workload::Stage::queue, Queue::kDelay}, now);
    return true;
  }
  band.fairness->dispatched(*flow, band.queues, now);
  if (band.charging) {
    charge(band, *flow, band.charging->at_dispatch(id), now);
  }
  const signals::RequestView request(requests_, id);
  for (const auto& limit : limits_) limit->started(request);
  chain_.dispatched(request, now);
  evictor_.dispatched(id, request.priority());
  ++books_.dispatched;
  ++dispatched_by_tenant_[flow->index()];
  max_in_flight_ = std::max(max_in_flight_, books_.in_flight());
  peak_in_flight_ = std::max(peak_in_flight_, books_.in_flight());
  journal_.dispatched[id.index()] = now;
  journal_.outcome[id.index()] = Outcome::in_transit;
  measure(signals::SensorSource::queue_delay, id, now - requests_.arrival(id), now);
  departures_.dispatched.push_back(id);
  return true;
}

bool Pipeline::first_token(RequestId id, sim::InstanceId instance, Time entered_engine, Time now) {
  const signals::RequestView request(requests_, id);
  for (const auto& limit : limits_) limit->first_token(request);
  chain_.first_token(request, instance, now);
  BandState& band = band_of(id);
  if (band.charging) {
    charge(band, TenantId{requests_.tenant(id)}, band.charging->at_first_token(id), now);
  }
  measure(signals::SensorSource::ttft, id, now - requests_.arrival(id), now);
  measure(signals::SensorSource::engine_ttft, id, now - entered_engine, now);
  return frees_at_first_token_ && books_.queued() > 0;
}

bool Pipeline::release(RequestId id, Outcome outcome, Time now) {
  ++books_.ended;
  evictor_.ended(id, now);
  if (outcome == Outcome::evicted) {
    ++books_.reclaimed;
    journal_.reason[id.index()] = {workload::Stage::queue, Queue::kInFlight};
  }
  const signals::RequestView request(requests_, id);
  for (const auto& limit : limits_) limit->ended(request);
  BandState& band = band_of(id);
  if (band.fairness->decays_with_time()) charge_tokens(band, now);
  if (band.charging) {
    charge(band, TenantId{requests_.tenant(id)},
           band.charging->at_end(id, outcome == Outcome::completed), now);
  }
  chain_.finished(request, outcome, now);
  const Time e2e = now - requests_.arrival(id);
  // Of what was dispatched, only workers reject.
  if (samples_refusals_ && outcome == Outcome::rejected) {
    measure(signals::SensorSource::ttft, id, e2e, now);
    measure(signals::SensorSource::e2e, id, e2e, now);
  }
  if (governor_ && outcome == Outcome::completed) {
    const std::int64_t tokens = requests_.goal_tokens(id);
    measure(signals::SensorSource::e2e, id, e2e, now);
    measure(signals::SensorSource::e2e_per_token, id, Time{e2e.ns / tokens}, now);
  }
  return std::any_of(bands_.begin(), bands_.end(), [](const BandState& one) {
    return one.queues.size() > 0 || one.fairness->drains_when_empty();
  });
}

void Pipeline::measure(signals::SensorSource source, RequestId id, Time value, Time now) {
  if (!governor_ || source != source_) return;
  const double value_s = sim::to_seconds(value);
  sensor_.record(TenantId{requests_.tenant(id)}, value_s, now);
  governor_->sample(value_s, journal_.dispatched[id.index()], now);
}

// ---- what happens by itself ----------------------------------------------------------------

Time Pipeline::next_timeout() {
  Time earliest = sim::kForever;
  for (BandState& band : bands_) earliest = std::min(earliest, band.queues.next_timeout());
  return earliest;
}

const Departures& Pipeline::expire(Time now) {
  departures_.clear();
  for (BandState& band : bands_) {
    while (const auto removed = band.queues.take_expired(now)) {
      lose(band, *removed, Outcome::expired, {workload::Stage::queue, Queue::kTimeout}, now);
    }
  }
  return departures_;
}

void Pipeline::tick(const signals::View* view, Time now) {
  const signals::Aggregate measured = sensor_.read(now);
  Reading reading{.value = measured.value,
                  .samples = measured.samples,
                  .in_flight = books_.in_flight(),
                  .queued = books_.queued(),
                  .max_in_flight = max_in_flight_,
                  .shed = shed_};
  if (reads_fleet_at_ticks_) {
    std::int64_t hits = 0;
    std::int64_t lookups = 0;
    for (std::size_t i = 0; i < view->size(); ++i) {
      const signals::InstanceSignal seen = view->instance(i);
      reading.kv_utilization += seen.kv_utilization / static_cast<double>(view->size());
      hits += seen.prefix_hits;
      lookups += seen.prefix_lookups;
    }
    // Of what was looked up since the last tick.
    const std::int64_t looked_up = lookups - prefix_lookups_;
    if (looked_up > 0) {
      hit_rate_ = static_cast<double>(hits - prefix_hits_) / static_cast<double>(looked_up);
      prefix_hits_ = hits;
      prefix_lookups_ = lookups;
    }
    reading.hit_rate = hit_rate_;
    if (source_ == signals::SensorSource::kv_utilization) reading.value = reading.kv_utilization;
    if (source_ == signals::SensorSource::hit_rate) reading.value = reading.hit_rate;
  }
  const ControlStep step = governor_->tick(reading, now);
  LimitPolicy& limit = *controlled_;
  if (step.limit != limit.setting()) limit.resize(step.limit);
  control_log_.push_back(
      {now, replica_, step.action, reading.value, reading.samples, limit.setting().value_or(0),
       limit.permits().value_or(std::numeric_limits<double>::quiet_NaN()), reading.in_flight});
  max_in_flight_ = books_.in_flight();
  shed_ = 0;
}

void Pipeline::set_workers(std::int64_t workers) {
  for (const auto& limit : limits_) limit->set_workers(workers);
}

// ---- what it is like -----------------------------------------------------------------------

std::int64_t Pipeline::queued(TenantId tenant) const {
  std::int64_t total = 0;
  for (const BandState& band : bands_) {
    total += static_cast<std::int64_t>(band.queues.length(tenant));
  }
  return total;
}

double Pipeline::permits() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& limit : limits_) {
    least = std::min(least, limit->permits().value_or(least));
  }
  return std::isinf(least) ? std::numeric_limits<double>::quiet_NaN() : least;
}

}  // namespace spillway::gateway
