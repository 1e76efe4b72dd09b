#pragma once

#include <cstdint>
#include <vector>

#include "instance/instance.h"
#include "instance/step_loop/state.h"
#include "sim/event_queue.h"
#include "sim/time.h"

namespace spillway::instance {

class StepLoopEngine;

/// The common step clock of an instance's ranks: their steps start and end together, and last as
/// long as the longest of them. The engine of all its ranks in the event queue; its alarm is that
/// of the first of them.
class Lockstep final : public Engine {
 public:
  /// `engine`: the position of the first rank among the run's engines.
  Lockstep(std::uint32_t engine, sim::EventQueue& events) : engine_(engine), events_(events) {}

  /// The next rank. It must outlive all steps.
  void add(StepLoopEngine& rank) { ranks_.push_back(&rank); }
  /// A rank has work. If no step is in progress, one starts after all other events of this instant.
  void request_step(sim::Time now);
  void start_step(sim::Time now) override;
  void end_step(sim::Time now) override;

 private:
  std::uint32_t engine_;
  sim::EventQueue& events_;
  std::vector<StepLoopEngine*> ranks_;
  Activity activity_ = Activity::idle;
};

}  // namespace spillway::instance
