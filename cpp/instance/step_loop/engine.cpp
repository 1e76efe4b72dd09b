#include "instance/step_loop/engine.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "instance/plant/step_loop.h"
#include "instance/step_loop/forecast.h"
#include "instance/step_loop/jump.h"
#include "instance/step_loop/transitions.h"
#include "sim/error.h"
#include "sim/phase.h"

namespace spillway::instance {

using sim::Phase;
using sim::RequestId;
using sim::Time;

StepLoopEngine::StepLoopEngine(const InstanceGroup& group, sim::InstanceId id, std::uint32_t engine,
                               signals::SignalSource* reporter, const Environment& environment)
    : group_(group),
      id_(id),
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
  if (settings_.resumptions) [[unlikely]]
    resume_in_queue(state_, id);
  if (state_.activity == Activity::idle) request_step(now);
}

bool StepLoopEngine::accepts(RequestId id, Leg leg) const { return can_hold_leg(state_, id, leg); }

void StepLoopEngine::begin_step_of_now(Time now) {
  take_scrapes(now, true);
  catch_up(state_, recorder_, now + Time{1});
}

void StepLoopEngine::enqueue_leg(RequestId id, Leg leg, Time now) {
  if (!accepts(id, leg)) return refuse(id, now);
  take_scrapes(now, true);
  join_queue_as(state_, recorder_, id, leg, now);
  if (settings_.resumptions) resume_in_queue(state_, id);
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

HeldPrompts StepLoopEngine::held_prompts() const {
  for (const std::vector<Prompt>* prompts : {&state_.unread, &state_.receiving, &state_.ready}) {
    for (const Prompt& prompt : *prompts) {
      sim::require(prompt.holding.blocks == state_.memory.blocks_for(prompt_of(state_, prompt.id)),
                   "instance " + std::to_string(id_.value) + " holds " +
                       std::to_string(prompt.holding.blocks) +
                       " KV blocks of the prompt of request " + std::to_string(prompt.id.value));
    }
  }
  return {std::ssize(state_.unread), std::ssize(state_.receiving)};
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
  if (!lockstep_ && end_due_step(state_, recorder_, now)) begin_step_after(now);
  withdraw(state_, recorder_, {id, outcome}, now);
  if (sim::is_set(suspended_) && !state_.leaving.empty()) take_out_leaving(state_, recorder_, now);
  // An idle engine may have waiting legs, one of which may now fit.
  if (settings_.has_legs) wake(now);
}

namespace {

// An end of the step under way that is never reached.
constexpr Time kStandstill = sim::from_seconds(sim::kLongestSpan_s);

/// The engine in the event queue where instances may fail: a start that a fault has overtaken has
/// no effect.
class FallibleEngine final : public Engine {
 public:
  explicit FallibleEngine(StepLoopEngine& engine) : engine_(engine) {}
  void start_step(Time now) override {
    if (engine_.awaits_step()) engine_.start_step(now);
  }
  void end_step(Time now) override {
    engine_.awaits_kv_loss() ? engine_.end_step_with_loss(now) : engine_.end_step(now);
  }

 private:
  StepLoopEngine& engine_;
};

}  // namespace

// A new process begins with a new state, an empty memory and the counts so far.
void StepLoopEngine::crash(Time now) {
  take_scrapes(now, false);
  if (state_.activity == Activity::stepping) recorder_.step_ends(now);
  lose_requests(state_, recorder_, now);
  events_.clear_alarm(engine_);
  suspended_ = sim::kUnset;
  const KvCounts memory = kv_counts(state_);
  const Counters counters = state_.counters;
  std::vector<std::int64_t> emitted = std::move(state_.emitted_by_group);
  std::destroy_at(&state_);
  std::construct_at(&state_, settings_, group_, !emitted.empty());
  state_.memory.restart(memory);
  state_.counters = counters;
  state_.emitted_by_group = std::move(emitted);
  state_.waiting_since = now;
  *settings_.slowness = 1;
}

void StepLoopEngine::suspend(Time now) {
  take_scrapes(now, false);
  end_jump_early(state_, recorder_, now);
  events_.clear_alarm(engine_);
  suspended_ = now;
  if (state_.activity == Activity::stepping) {
    state_.jump.duration = state_.jump.duration + kStandstill;
    state_.jump.end = state_.jump.end_of_step();
  } else {
    state_.activity = Activity::step_requested;  // so that no arrival requests one
  }
}

void StepLoopEngine::resume(Time now) {
  const Time stood = now - suspended_;
  suspended_ = sim::kUnset;
  if (state_.activity == Activity::stepping) {
    state_.jump.duration = state_.jump.duration - kStandstill + stood;
    state_.jump.end = state_.jump.end_of_step();
    recorder_.step_ends(state_.jump.end);
    events_.set_alarm(engine_, state_.jump.end);
  } else {
    state_.activity = Activity::idle;
    wake(now);
  }
}

void StepLoopEngine::set_slowness(double factor, Time now) {
  if (!sim::is_set(suspended_)) {
    take_scrapes(now, false);
    end_jump_early(state_, recorder_, now);
  }
  *settings_.slowness = factor;
  if (state_.activity == Activity::idle) {
    events_.clear_alarm(engine_);
    wake(now);
  }
}

Loss StepLoopEngine::lose_kv(bool cached_only, Time now) {
  take_scrapes(now, false);
  const Loss loss =
      instance::lose_kv(state_, recorder_, cached_only ? KvLoss::cached : KvLoss::all, now);
  if (state_.activity == Activity::idle) {
    events_.clear_alarm(engine_);
    wake(now);
  }
  return loss;
}

void StepLoopEngine::end_step_with_loss(Time now) {
  take_scrapes(now, false);
  instance::end_step(state_, recorder_, now);
  empty_memory(state_, recorder_, now);
  if (has_work()) return request_step(now);
  events_.clear_alarm(engine_);
}

Engine* StepLoopEngine::make_fallible() {
  fallible_ = std::make_unique<FallibleEngine>(*this);
  return fallible_.get();
}

void StepLoopEngine::request_step(Time now) {
  if (lockstep_) return lockstep_->request_step(now);
  if (!events_.is_due(now, engine_)) return start_step(now);
  begin_step_after(now);
}

// The step begins after all other events of this instant.
void StepLoopEngine::begin_step_after(Time now) {
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
    for (const RequestId id : permits_.requests()) recorder_.post_permit(id, now);
  } else {
    if (has_work()) state_.activity = Activity::step_requested;
    const std::span<const RequestId> all = permits_.requests();
    for (const RequestId id : all.first(all.size() - 1)) listener_.released(id);
    const RequestId last = all.back();
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
  if (environment.may_fail) {
    engines.push_back(engine->make_fallible());
  } else if (environment.lockstep) {
    engines.push_back(environment.lockstep);
  } else {
    engines.push_back(engine.get());
  }
  return engine;
}

}  // namespace spillway::instance
