#include "cluster/health.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>
#include <variant>

#include "sim/phase.h"
#include "sim/rng.h"

namespace spillway::cluster {

using instance::Fallible;
using sim::InstanceId;
using sim::Time;
using State = instance::Fallible::State;

namespace {

// At least one nanosecond, so that what begins and ends are two instants.
Time span_of(double seconds) { return std::max(sim::from_seconds(seconds), Time{1}); }

Time end_of(Time begin, const std::optional<double>& for_s) {
  return for_s ? begin + span_of(*for_s) : sim::kForever;
}

}  // namespace

Health::Health(Context& context, std::span<const std::unique_ptr<instance::Instance>> instances,
               fleet::FleetState& state)
    : context_(context),
      instances_(instances),
      state_(state),
      detected_after_(sim::from_seconds(context.simulation.fleet.health.detected_after_s)),
      startup_(sim::from_seconds(context.simulation.fleet.startup_s)),
      reported_after_(sim::from_seconds(context.simulation.fleet.reported_ready_after_s.value_or(
          context.simulation.fleet.startup_s))),
      of_(instances.size()) {}

void Health::start() {
  for (const Change& change : context_.simulation.changes) {
    for (const fleet::Fault& fault : change.faults) {
      if (!fleet::is_of_gateway(fault)) add(fault, sim::from_seconds(change.at_s));
    }
  }
  if (!context_.simulation.fleet.breakdowns) return;
  for (std::size_t i = 0; i < of_.size(); ++i) schedule_breakdown(InstanceId{i});
}

void Health::add(const fleet::Fault& fault, Time at) {
  const auto number = static_cast<std::size_t>(fleet::number_of(fault));
  push(at, InstanceId{number}, {Kind::begins, 0, fault});
}

void Health::push(Time at, InstanceId id, const Timer& timer) {
  if (at == sim::kForever) return;
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::uint32_t>(timers_.size()));
    timers_.emplace_back();
  }
  const std::uint32_t subject = unused_.back();
  unused_.pop_back();
  timers_[subject] = timer;
  context_.events.push({at, sim::Phase::fleet_change, 1 + id.value, subject});
}

void Health::push(Time at, InstanceId id, Kind kind) {
  push(at, id, {kind, kind == Kind::has_speed ? of_[id.index()].speed : of_[id.index()].life, {}});
}

InstanceId Health::handle(const sim::Event& event, bool continues) {
  const InstanceId id{event.tie() - 1};
  const Timer timer = timers_[event.subject()];
  unused_.push_back(event.subject());
  OfInstance& of = of_[id.index()];
  const bool is_current = timer.life == of.life;
  switch (timer.kind) {
    case Kind::begins:
      std::visit(
          [&](const auto& fault) {
            if constexpr (requires { fault.instance; }) begin(fault, id);
          },
          timer.fault);
      break;
    case Kind::breaks_down:
      of.breaks_down = false;
      if (continues) break_down(id);
      break;
    case Kind::restarts:
      if (!is_current) break;
      of.restart = sim::kForever;
      of.reported = context_.now + reported_after_;
      at(id).restart(context_.now);
      push(context_.now + startup_, id, Kind::serves);
      push(of.reported, id, Kind::is_reported);
      break;
    case Kind::serves:
      if (!is_current) break;
      at(id).serve(context_.now);
      reports_[of.failure].ended = context_.now;
      settle(id);
      if (continues) schedule_breakdown(id);
      break;
    case Kind::is_reported:
      if (is_current && of.is_known) set_known(id, false);
      break;
    case Kind::is_detected:
      if (is_current) detect(id);
      break;
    case Kind::goes_on:
      if (!is_current || at(id).state() != State::hung) break;
      at(id).go_on(context_.now);
      if (of.is_known) push(std::max(context_.now, of.reported), id, Kind::is_reported);
      reports_[of.failure].ended = context_.now;
      settle(id);
      if (continues) schedule_breakdown(id);
      break;
    case Kind::has_speed:
      if (timer.life == of.speed) restore_speed(id);
      break;
  }
  return id;
}

// ---- faults begin ------------------------------------------------------------------------------

std::size_t Health::report(std::string_view kind, InstanceId id) {
  reports_.push_back(
      {.kind = kind, .instance = static_cast<std::int32_t>(id.value), .began = context_.now});
  return reports_.size() - 1;
}

void Health::begin(const fleet::Crash& fault, InstanceId id) {
  if (at(id).state() == State::down) return;
  settle(id);
  of_[id.index()].failure = report(fleet::Crash::kind, id);
  crash(id, end_of(context_.now, fault.for_s));
  if (of_[id.index()].is_known) {
    reports_.back().detected = context_.now;
  } else if (detected_after_ == Time{0}) {
    detect(id);
  } else {
    push(context_.now + detected_after_, id, Kind::is_detected);
  }
}

void Health::begin(const fleet::Hang& fault, InstanceId id) {
  if (at(id).state() != State::up) return;
  settle(id);
  OfInstance& of = of_[id.index()];
  ++of.life;
  if (of.reported <= context_.now) of.reported = sim::kForever;  // that of an earlier failure
  of.failure = report(fleet::Hang::kind, id);
  at(id).hang(context_.now);
  // A hang that ends when it would be detected is not.
  push(end_of(context_.now, fault.for_s), id, Kind::goes_on);
  if (detected_after_ == Time{0}) return detect(id);
  push(context_.now + detected_after_, id, Kind::is_detected);
}

void Health::begin(const fleet::Slowdown& fault, InstanceId id) {
  if (at(id).state() == State::down) return;
  OfInstance& of = of_[id.index()];
  restore_speed(id);
  of.slowdown = report(fleet::Slowdown::kind, id);
  of.is_slow = true;
  at(id).set_slowness(fault.factor, context_.now);
  push(end_of(context_.now, fault.for_s), id, Kind::has_speed);
}

void Health::begin(const fleet::KvLoss& fault, InstanceId id) {
  const State state = at(id).state();
  if (state != State::up && state != State::hung) return;
  FaultReport& made = reports_[report(fleet::KvLoss::kind, id)];
  made.ended = context_.now;
  made.loss = at(id).lose_kv(fault.cached_only, context_.now);
}

void Health::schedule_breakdown(InstanceId id) {
  const auto& breakdowns = context_.simulation.fleet.breakdowns;
  OfInstance& of = of_[id.index()];
  if (!breakdowns || of.breaks_down) return;
  of.breaks_down = true;
  sim::Draws draws(context_.seed, sim::Stream::breakdowns, id.value, 2 * of.breakdowns);
  const Time after =
      span_of(std::min(draws.exponential() * breakdowns->mttf_s, sim::kLongestSpan_s));
  push(context_.now + after, id, Kind::breaks_down);
}

// A failed instance is left to its other fault; it works on from when that is over.
void Health::break_down(InstanceId id) {
  const auto& breakdowns = context_.simulation.fleet.breakdowns;
  if (!breakdowns) return;
  OfInstance& of = of_[id.index()];
  sim::Draws draws(context_.seed, sim::Stream::breakdowns, id.value, 2 * of.breakdowns++ + 1);
  const double for_s = std::min(draws.exponential() * breakdowns->mttr_s, sim::kLongestSpan_s);
  if (at(id).state() != State::up) return;
  const auto instance = static_cast<std::int64_t>(id.value);
  if (breakdowns->hangs) return begin(fleet::Hang{instance, for_s}, id);
  begin(fleet::Crash{instance, for_s}, id);
}

// ---- what follows ------------------------------------------------------------------------------

void Health::settle(InstanceId id) {
  const instance::Loss loss = at(id).take_loss();
  if (loss.requests == 0 && loss.tokens == 0 && loss.migrated == 0) return;
  instance::Loss& sum = reports_[of_[id.index()].failure].loss;
  sum.requests += loss.requests;
  sum.tokens += loss.tokens;
  sum.time += loss.time;
  sum.migrated += loss.migrated;
}

void Health::close() {
  for (std::size_t i = 0; i < of_.size(); ++i) settle(InstanceId{i});
}

// A slowdown ends with the process.
void Health::crash(InstanceId id, Time restart) {
  OfInstance& of = of_[id.index()];
  ++of.life;
  of.restart = restart;
  of.reported = sim::kForever;
  restore_speed(id);
  at(id).lose_all(context_.now);
  push(restart, id, Kind::restarts);
}

void Health::detect(InstanceId id) {
  const OfInstance& of = of_[id.index()];
  const State state = at(id).state();
  // A hang has overtaken the report that was to come.
  if (state == State::up || (state != State::hung && of.reported <= context_.now)) return;
  reports_[of.failure].detected = context_.now;
  if (state == State::hung) crash(id, context_.now);
  set_known(id, true);
}

void Health::set_known(InstanceId id, bool is_known) {
  of_[id.index()].is_known = is_known;
  state_.set_failed(id, is_known);
  at(id).set_known(is_known, context_.now);
}

void Health::restore_speed(InstanceId id) {
  OfInstance& of = of_[id.index()];
  ++of.speed;
  const bool is_slow = std::exchange(of.is_slow, false);
  if (!is_slow) return;
  at(id).set_slowness(1, context_.now);
  reports_[of.slowdown].ended = context_.now;
}

bool Health::will_recover(std::span<const InstanceId> among) const {
  const auto recovers = [this](InstanceId id) {
    const OfInstance& of = of_[id.index()];
    const bool will_serve = of.restart != sim::kForever || of.reported != sim::kForever;
    return of.is_known && will_serve && state_.is_in_service(id);
  };
  if (!among.empty()) return std::ranges::any_of(among, recovers);
  const auto all = std::views::iota(std::size_t{0}, of_.size());
  return std::ranges::any_of(all, [&](std::size_t i) { return recovers(InstanceId{i}); });
}

std::string_view Health::condition_of(InstanceId id) const {
  switch (at(id).state()) {
    case State::up:
      return "up";
    case State::hung:
      return "hung";
    case State::loading:
      return "restarting";
    case State::down:
      break;
  }
  return of_[id.index()].restart == sim::kForever ? "down" : "restarting";
}

}  // namespace spillway::cluster
