#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "instance/instance.h"
#include "instance/step_loop/lockstep.h"
#include "instance/step_loop/recorder.h"
#include "instance/step_loop/state.h"
#include "signals/scrapes.h"
#include "signals/signal_source.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_states.h"

namespace spillway::instance {

/// The step loop in a run: idle, with a step requested for the end of the instant, or stepping. It
/// schedules the transitions of the engine's state, and takes scrapes before them.
class StepLoopEngine final : public Instance, public Engine, public Forecaster, public LegEngine {
 public:
  /// `engine`: its position among the run's engines; `reporter`: the source that is scraped when
  /// the state of this one changes, null: itself.
  StepLoopEngine(const InstanceGroup& group, sim::InstanceId id, std::uint32_t engine,
                 signals::SignalSource* reporter, const Environment& environment);

  void enqueue(sim::RequestId id, std::size_t rank, sim::Time now) override;
  void cancel(sim::RequestId id, std::size_t rank, workload::Outcome outcome,
              sim::Time now) override;
  void start_step(sim::Time now) override;
  void end_step(sim::Time now) override;
  /// The parts of a step in lockstep. The batch is formed; the duration that its step would have
  /// without the other ranks, 0: no request has work.
  sim::Time form_batch(sim::Time now);
  /// The step of the batch starts, if there is one.
  void begin_common_step(sim::Time duration, sim::Time now);
  void end_common_step(sim::Time now);
  bool has_work() const { return instance::has_work(state_); }
  void close(sim::Time end) override;
  void crash(sim::Time now) override;
  void suspend(sim::Time now) override;
  void resume(sim::Time now) override;
  void set_slowness(double factor, sim::Time now) override;
  Loss lose_kv(bool cached_only, sim::Time now) override;
  /// The end of a step after which the KV memory is empty.
  void end_step_with_loss(sim::Time now);
  bool awaits_kv_loss() const { return state_.kv_loss != KvLoss::none; }
  /// What the event queue calls in its place where instances may fail. It lives as long as this.
  Engine* make_fallible();
  /// Whether it is to start a step at this instant.
  bool awaits_step() const {
    return state_.activity == Activity::step_requested && !sim::is_set(suspended_);
  }

  sim::Time entry_delay(sim::RequestId id) const override;
  signals::InstanceSignal read(sim::Time now) override;
  signals::Occupancy occupancy() const override;
  signals::Capacity capacity() const override;
  std::int64_t cached_blocks(sim::RequestId id, sim::Time now) override;
  void add_emitted(std::span<std::int64_t> by_group, sim::Time now) override;
  void note_emitted(sim::Time now) override;
  sim::Time next_token(sim::Time now) override;
  const Counters& counters() const override { return state_.counters; }
  Stepping stepping() const override { return settings_.stepping; }
  void check_memory() const override;

  LegEngine* legs() override { return settings_.has_legs && !lockstep_ ? this : nullptr; }
  bool accepts(sim::RequestId id, Leg leg) const override;
  void begin_step_of_now(sim::Time now) override;
  void enqueue_leg(sim::RequestId id, Leg leg, sim::Time now) override;
  void arrived(sim::RequestId id, sim::Time now) override;
  void release(sim::RequestId id, bool was_read, sim::Time now) override;
  void keep(sim::RequestId id, sim::Time now) override;
  bool is_idle() const override { return state_.activity == Activity::idle; }
  void drop(sim::RequestId id, sim::Time now) override;
  HeldPrompts held_prompts() const override;

  const Forecaster* forecaster() const override { return this; }
  sim::Time predict_first_token(std::span<const Entry> entries, sim::Time now) const override;

 private:
  void take_scrapes(sim::Time now, bool inclusive);
  void refuse(sim::RequestId id, sim::Time now);
  void request_step(sim::Time now);
  void begin_step_after(sim::Time now);
  // An idle engine looks again at what waits.
  void wake(sim::Time now);
  void release_permits(sim::Time now);
  // `decoders`: tokens of each decoder that have not been applied.
  void record_emitted(std::int32_t decoders);

  const InstanceGroup& group_;
  sim::InstanceId id_;
  std::uint32_t engine_;
  signals::SignalSource& reporter_;
  workload::RequestListener& listener_;
  workload::RequestStates& states_;
  sim::EventQueue& events_;
  signals::Scrapes* scrapes_;
  Lockstep* lockstep_;  // null: steps by itself
  const EngineSettings settings_;
  EngineState state_;
  Recorder recorder_;
  Permits permits_;                    // of requests that leave with the current step
  sim::Time suspended_ = sim::kUnset;  // since when it stands still
  std::unique_ptr<Engine> fallible_;   // null unless it may fail
};

}  // namespace spillway::instance
