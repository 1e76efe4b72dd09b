#include "cluster/drain_schedule.h"

#include <variant>

#include "sim/phase.h"

namespace spillway::cluster {

using sim::Phase;
using sim::Time;

namespace {

/// Number of scrapes after which past changes count as reported, even if some scrapes are lost.
constexpr double kMaxScrapesInFlight = 100;

Time max_signal_delay(const signals::Signals& transport) {
  if (const auto* scraped = std::get_if<signals::Scraped>(&transport)) {
    return sim::from_seconds(scraped->delay_s + kMaxScrapesInFlight * scraped->period_s);
  }
  const auto* on_read = std::get_if<signals::OnRead>(&transport);
  return on_read ? sim::from_seconds(on_read->period_s) : Time{0};
}

}  // namespace

DrainSchedule::DrainSchedule(Context& context, std::uint32_t gateway, std::uint32_t tie)
    : context_(context),
      gateway_(gateway),
      tie_(tie),
      is_cyclic_(context.simulation.gateway.dispatch == gateway::Dispatch::one_per_cycle),
      counts_idle_cycles_(gateway::counts_idle_cycles(context.simulation.gateway)),
      is_one_per_attempt_(context.simulation.gateway.dispatch != gateway::Dispatch::all),
      polls_(!is_one_per_attempt_ && gateway::has_saturation_limit(context.simulation.gateway)),
      period_(sim::from_seconds(context.simulation.gateway.attempt_period_s)),
      max_signal_delay_(max_signal_delay(context.simulation.signals)) {}

bool DrainSchedule::request(Time delay) {
  is_for_tick_ = false;
  if (sim::is_set(due_)) return false;
  if (context_.can_run_inline(delay)) return true;
  push_drain(delay);
  return false;
}

bool DrainSchedule::wake(Time delay) {
  if (!is_one_per_attempt_) return request(delay);
  wake_attempts();
  return false;
}

void DrainSchedule::wake_by_event(Time delay) {
  if (is_one_per_attempt_) return wake_attempts();
  is_for_tick_ = false;
  if (!sim::is_set(due_)) push_drain(delay);
}

void DrainSchedule::push_drain(Time delay) {
  due_ = context_.now + delay;
  context_.events.push({due_, Phase::queue_drain, tie_, gateway_});
}

void DrainSchedule::wake_attempts() {
  is_for_tick_ = false;
  if (!has_attempt_ && sim::is_set(next_attempt_)) resume();
}

bool DrainSchedule::is_due(Phase phase, std::int64_t queued) {
  if (phase == Phase::queue_drain) {
    due_ = sim::kUnset;
    return true;
  }
  has_attempt_ = false;
  next_attempt_ = sim::kUnset;
  return !is_one_per_attempt_ || queued > 0 || counts_idle_cycles_;
}

void DrainSchedule::schedule_attempt(std::int64_t queued, bool may_succeed) {
  if (has_attempt_) return;
  if (sim::is_set(next_attempt_)) {
    if (may_succeed) resume();
    return;
  }
  const bool is_idle = queued == 0;
  if (is_idle && (!counts_idle_cycles_ || !signals_may_open_gate())) return;
  const Time at = first_attempt();
  if (is_one_per_attempt_) next_attempt_ = at;
  if (!may_succeed) return;
  push_attempt(at);
  is_for_tick_ = is_idle;
}

// Of a series that begins now.
Time DrainSchedule::first_attempt() const {
  if (!is_cyclic_) return context_.now + period_;
  return Time{(context_.now.ns / period_.ns + 1) * period_.ns};
}

void DrainSchedule::push_attempt(Time at) {
  has_attempt_ = true;
  is_for_tick_ = false;
  context_.events.push({at, Phase::dispatch_attempt, 0, gateway_});
}

// Schedules the next attempt of the series that sees the latest change.
void DrainSchedule::resume() {
  const Time from = context_.drains_over == context_.now ? context_.now + Time{1} : context_.now;
  if (next_attempt_ < from) {
    const std::int64_t missed = (from - next_attempt_ + period_ - Time{1}).ns / period_.ns;
    next_attempt_ = next_attempt_ + Time{missed * period_.ns};
  }
  push_attempt(next_attempt_);
}

}  // namespace spillway::cluster
