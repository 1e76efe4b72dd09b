#include "instance/fallible.h"

#include <algorithm>
#include <utility>

#include "sim/phase.h"

namespace spillway::instance {

using sim::RequestId;
using sim::Time;
using workload::Outcome;

namespace {

Counters counts_of(Instance& instance) {
  Counters sum;
  for (std::size_t i = 0; i < instance.num_ranks(); ++i) sum += instance.rank(i).counters();
  return sum;
}

}  // namespace

Fallible::Fallible(std::unique_ptr<Instance> inner, sim::InstanceId id, std::uint32_t engine,
                   const Environment& environment)
    : id_(id),
      engine_(engine),
      swallows_(environment.swallows),
      states_(environment.states),
      events_(environment.events),
      listener_(environment.listener),
      legs_(environment.legs),
      scrapes_(environment.scrapes),
      reported_(*inner) {
  set_inner(std::move(inner));
}

void Fallible::fall_silent(Time now) {
  if (reported_.is_silent()) return;
  reported_.fall_silent(now);
  if (scrapes_) scrapes_->set_silent(id_, true, now);
}

void Fallible::report_again(Time now) {
  reported_.report_again();
  if (scrapes_) scrapes_->set_silent(id_, false, now);
}

void Fallible::lose_all(Time now) {
  fall_silent(now);
  state_ = State::down;
  const Counters before = counts_of(inner());
  loss_.requests += inner().ingress() ? inner().ingress()->queued : 0;
  inner().crash(now);
  const Counters after = counts_of(inner());
  loss_.requests += after.lost - before.lost + after.lost_legs - before.lost_legs;
  loss_.tokens += after.tokens_wasted - before.tokens_wasted;
  loss_.time += after.lost_time - before.lost_time;
  fail_held(now);
}

void Fallible::restart(Time now) {
  state_ = State::loading;
  fail_held(now);
}

void Fallible::serve(Time now) {
  delay_step(now);
  state_ = State::up;
  report_again(now);
  enter_held(now);
}

void Fallible::hang(Time now) {
  fall_silent(now);
  state_ = State::hung;
  inner().suspend(now);
}

void Fallible::go_on(Time now) {
  delay_step(now);
  state_ = State::up;
  inner().resume(now);
  report_again(now);
  enter_held(now);
}

void Fallible::set_known(bool is_known, Time now) {
  is_known_ = is_known;
  if (is_known_ && state_ == State::down) fail_held(now);
}

void Fallible::enqueue(RequestId id, std::size_t rank, Time now) {
  if (state_ == State::up) return inner().enqueue(id, rank, now);
  if (refuses()) {
    ++loss_.requests;
    return lose(id, now);
  }
  states_.outcome[id.index()] = Outcome::running;
  held_.push_back({id, rank});
}

Fallible::Reception Fallible::receive(RequestId id) {
  if (state_ == State::up) return Reception::enters;
  if (refuses()) {
    ++loss_.requests;
    return Reception::is_lost;
  }
  held_.push_back({.id = id, .is_leg = true});
  return Reception::is_held;
}

void Fallible::cancel(RequestId id, std::size_t rank, Outcome outcome, Time now) {
  const auto held = std::ranges::find(held_, id, &Held::id);
  if (held == held_.end()) return inner().cancel(id, rank, outcome, now);
  held_.erase(held);
  end(id, outcome, now);
}

void Fallible::lose(RequestId id, Time now) {
  states_.reason[id.index()] = workload::kInstanceLost;
  end(id, Outcome::failed, now);
}

void Fallible::end(RequestId id, Outcome outcome, Time now) {
  states_.outcome[id.index()] = outcome;
  listener_.finished(id);
  events_.push({now, sim::Phase::permit_release, engine_, id.value});
}

void Fallible::fail_held(Time now) {
  for (const Held& held : std::exchange(held_, {})) {
    ++loss_.requests;
    held.is_leg ? legs_->held_leg_is_lost(held.id) : lose(held.id, now);
  }
}

// An idle engine would start its step at once if no event were due, before all have entered.
void Fallible::delay_step(Time now) {
  events_.push({now, sim::Phase::ingress, id_.value, IngressSubject::place_became_free()});
}

void Fallible::enter_held(Time now) {
  for (const Held& held : std::exchange(held_, {})) {
    held.is_leg ? legs_->held_leg_enters(held.id) : inner().enqueue(held.id, held.rank, now);
  }
}

// Requests that are held, but not legs, count as running in the books.
void Fallible::close(Time end) {
  inner().close(end);
  counters_ = inner().counters();
  counters_.entered += std::ranges::count(held_, false, &Held::is_leg);
  is_closed_ = true;
}

}  // namespace spillway::instance
