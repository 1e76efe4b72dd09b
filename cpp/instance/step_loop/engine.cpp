#include "instance/step_loop/engine.h"

#include <algorithm>
#include <cstddef>

#include "instance/plant/step_loop.h"
#include "instance/step_loop/forecast.h"
#include "instance/step_loop/jump.h"
#include "instance/step_loop/transitions.h"
#include "sim/phase.h"

namespace spillway::instance {

using sim::Phase;
using sim::RequestId;
using sim::Time;

StepLoopEngine::StepLoopEngine(const InstanceGroup& group, sim::InstanceId id, std::uint32_t engine,
                               signals::SignalSource* reporter, const Environment& environment)
    : id_(id),
      engine_(engine),
      reporter_(reporter ? *reporter : *this),
      listener_(environment.listener),
      states_(environment.states),
      events_(environment.events),
      scrapes_(environment.scrapes),
      lockstep_(environment.lockstep),
      settings_(group, engine, environment),
      state_(settings_, group, environment.meters_tokens),
      recorder_(engine, settings_, environment) {
  if (lockstep_) lockstep_->add(*this);
}

// Takes the scrapes of the state before it changes or is advanced. The end of a step precedes a
// scrape of the same instant, everything else follows it.
void StepLoopEngine::take_scrapes(Time now, bool inclusive) {
  if (scrapes_) scrapes_->take(id_, reporter_, now, inclusive);
}

Time StepLoopEngine::entry_delay(RequestId id) const {
  return settings_.quantum.truncate_us(
      settings_.latency->entry_us(settings_.requests.input_tokens(id)));
}

void StepLoopEngine::refuse(RequestId id, Time now) {
  state_.counters.last_event = std::max(state_.counters.last_event, now);
  ++state_.counters.refused;
  recorder_.refused(id, now);
}

void StepLoopEngine::enqueue(RequestId id, std::size_t, Time now) {
  if (!can_hold(state_, id)) return refuse(id, now);
  take_scrapes(now, true);
  join_queue(state_, recorder_, id, now);
  if (state_.activity == Activity::idle) request_step(now);
}

bool StepLoopEngine::accepts(RequestId id, Leg leg) const { return can_hold_leg(state_, id, leg); }

void StepLoopEngine::enqueue_leg(RequestId id, Leg leg, Time now) {
  if (!accepts(id, leg)) return refuse(id, now);
  take_scrapes(now, true);
  join_queue_as(state_, recorder_, id, leg, now);
  wake(now);
}

void StepLoopEngine::arrived(RequestId id, Time now) {
  take_scrapes(now, false);
  receive_prompt(state_, recorder_, id, now);
  wake(now);
}

void StepLoopEngine::release(RequestId id, bool was_read, Time now) {
  take_scrapes(now, false);
  forget_prompt(state_, recorder_, id, was_read, now);
  wake(now);
}

void StepLoopEngine::keep(RequestId id, Time now) {
  take_scrapes(now, false);
  keep_prompt(state_, recorder_, id, now);
  wake(now);
}

void StepLoopEngine::drop(RequestId id, Time now) {
  take_scrapes(now, false);
  drop_leg(state_, id, recorder_, now);
  wake(now);
}

void StepLoopEngine::wake(Time now) {
  if (state_.activity == Activity::idle && has_work()) request_step(now);
}

void StepLoopEngine::cancel(RequestId id, std::size_t, workload::Outcome outcome, Time now) {
  const auto is_it = [id](const Leaving& leaving) { return leaving.id == id; };
  if (states_.outcome[id.index()] != workload::Outcome::running ||
      std::any_of(state_.leaving.begin(), state_.leaving.end(), is_it)) {
    return;
  }
  take_scrapes(now, false);
  withdraw(state_, recorder_, {id, outcome}, now);
  // An idle engine may have waiting legs, one of which may now fit.
  if (settings_.has_legs) wake(now);
}

// The step begins after all other events of this instant.
void StepLoopEngine::request_step(Time now) {
  if (lockstep_) return lockstep_->request_step(now);
  if (!events_.is_due(now, engine_)) return start_step(now);
  state_.activity = Activity::step_requested;
  events_.clear_alarm(engine_);
  events_.push({now, Phase::step_start, engine_, engine_});
}

void StepLoopEngine::start_step(Time now) {
  take_scrapes(now, true);
  instance::start_step(state_, recorder_, now);
  if (state_.activity == Activity::idle) events_.clear_alarm(engine_);
}

void StepLoopEngine::end_step(Time now) {
  take_scrapes(now, false);
  if (settings_.stepping != Stepping::reference) recorder_.withhold_permits(&permits_);
  instance::end_step(state_, recorder_, now);
  recorder_.withhold_permits(nullptr);
  if (!permits_.empty()) release_permits(now);
  if (has_work()) return request_step(now);
  state_.activity = Activity::idle;
  events_.clear_alarm(engine_);
}

Time StepLoopEngine::form_batch(Time now) {
  if (!has_work()) return Time{0};
  take_scrapes(now, true);
  return instance::form_batch(state_, recorder_, now) ? state_.jump.duration : Time{0};
}

void StepLoopEngine::begin_common_step(Time duration, Time now) {
  if (state_.activity != Activity::stepping) return;
  state_.jump.duration = duration;
  begin_step(state_, recorder_, now);
}

void StepLoopEngine::end_common_step(Time now) {
  if (state_.activity != Activity::stepping) return;
  take_scrapes(now, false);
  instance::end_step(state_, recorder_, now);
}

// Events would release the permits after all other ends of steps of this instant, and before the
// next step. If nothing else is due, they would be next, so the permits are released immediately.
// Until the last one is, the alarm stands for the events of the others.
void StepLoopEngine::release_permits(Time now) {
  if (events_.is_due(now, engine_)) {
    for (const RequestId id : permits_) recorder_.post_permit(id, now);
  } else {
    if (has_work()) state_.activity = Activity::step_requested;
    const RequestId last = permits_.back();
    permits_.pop_back();
    for (const RequestId id : permits_) listener_.released(id);
    events_.disregard_alarm(engine_);
    listener_.released(last);
  }
  permits_.clear();
}

void StepLoopEngine::record_emitted(std::int32_t decoders) {
  for (const Slot& slot : state_.slots) recorder_.emitted(slot.id, slot.emitted);
  for (const Slot& slot : state_.ousted) recorder_.emitted(slot.id, slot.emitted);
  for (std::size_t i = 0; i < state_.waiting.size(); ++i) {
    recorder_.emitted(state_.waiting[i].id, state_.waiting[i].emitted);
  }
  for (const Decoders::Member& member : state_.decoders.members()) {
    const auto emitted = static_cast<std::int32_t>(state_.decoders.emitted(member));
    recorder_.emitted(member.id, emitted + decoders);
  }
}

void StepLoopEngine::close(Time end) {
  stop(state_, recorder_, end);
  record_emitted(0);
  for (const Decoders::Member& member : state_.decoders.members()) recorder_.left_decoders(member);
  recorder_.close();
}

signals::InstanceSignal StepLoopEngine::read(Time now) {
  take_scrapes(now, false);
  catch_up(state_, recorder_, now);
  const signals::Occupancy here = occupancy();
  const bool is_made = awaits_effects(state_, now);
  std::int64_t prefill_tokens = state_.waiting.tokens() - state_.awaited_tokens;
  for (const Slot& slot : state_.slots) {
    if (slot.is_decoding()) continue;
    prefill_tokens += slot.needed_tokens() - (is_made ? slot.tokens : 0);
  }
  const std::int64_t free = free_blocks(state_);
  const std::int64_t total = state_.memory.total();
  return {.waiting = here.waiting,
          .running = here.running,
          .kv_utilization = static_cast<double>(total - free) / static_cast<double>(total),
          .free_blocks = free,
          .prefill_tokens = prefill_tokens,
          .prefix_hits = state_.memory.counts().hits,
          .prefix_lookups = state_.memory.counts().lookups,
          .measured = now};
}

signals::Occupancy StepLoopEngine::occupancy() const {
  // Legs whose prompts are on their way or have arrived wait for a seat.
  return {static_cast<std::int32_t>(state_.waiting.size()) + state_.num_arriving,
          static_cast<std::int32_t>(num_running(state_))};
}

signals::Capacity StepLoopEngine::capacity() const {
  return {settings_.max_num_seqs, settings_.max_num_batched_tokens, state_.memory.total(),
          state_.memory.block_size().tokens()};
}

std::int64_t StepLoopEngine::cached_blocks(RequestId id, Time now) {
  take_scrapes(now, true);
  catch_up(state_, recorder_, now);
  return state_.memory.count_found(id);
}

void StepLoopEngine::add_emitted(std::span<std::int64_t> by_group, Time now) {
  take_scrapes(now, false);
  catch_up(state_, recorder_, now);
  for (std::size_t i = 0; i < by_group.size(); ++i) by_group[i] += state_.emitted_by_group[i];
  if (awaits_effects(state_, now)) state_.decoders.count_tokens(by_group, 1);
}

void StepLoopEngine::note_emitted(Time now) {
  take_scrapes(now, false);
  catch_up(state_, recorder_, now);
  record_emitted(awaits_effects(state_, now) ? 1 : 0);
}

Time StepLoopEngine::next_token(Time now) {
  take_scrapes(now, false);
  catch_up(state_, recorder_, now);
  if (!has_steps_ahead(state_) || state_.decoders.empty()) return sim::kForever;
  const Time end = state_.jump.end_of_step();
  if (end > now) return end;
  if (!settings_.durations_vary) return end + state_.jump.duration;
  return end + duration_of(settings_, following(state_.jump.load), state_.jump.emits);
}

void StepLoopEngine::check_memory() const { instance::check_memory(state_, id_); }

Time StepLoopEngine::predict_first_token(std::span<const Entry> entries, Time now) const {
  return instance::predict_first_token(state_, entries, now);
}

std::unique_ptr<Instance> make(const StepLoop&, const InstanceGroup& group, sim::InstanceId id,
                               signals::SignalSource* reporter, const Environment& environment,
                               std::vector<Engine*>& engines) {
  auto engine = std::make_unique<StepLoopEngine>(
      group, id, static_cast<std::uint32_t>(engines.size()), reporter, environment);
  if (environment.lockstep) {
    engines.push_back(environment.lockstep);
  } else {
    engines.push_back(engine.get());
  }
  return engine;
}

}  // namespace spillway::instance
