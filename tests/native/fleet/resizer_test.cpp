// When a new target and the autoscaler resize a fleet, and to which size.
#include "fleet/resizer.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "check.h"

using namespace spillway;
using fleet::Fleet;
using fleet::FleetState;
using fleet::Resizer;
using sim::from_seconds;

namespace {

// Polls every 5 s and follows each recommendation immediately.
fleet::QueueScaler prompt_scaler() {
  return {.poll_s = 5,
          .queue_threshold = 10,
          .shed_per_s_threshold = 1,
          .shed_window_s = 10,
          .min_instances = 1,
          .max_instances = 4,
          .up_stabilization_s = 0,
          .up_period_s = 0,
          .down_stabilization_s = 0,
          .down_period_s = 0};
}

struct Setup {
  explicit Setup(Fleet of, std::size_t num_instances = 4)
      : config(std::move(of)), state(config, num_instances) {}
  void apply(double at_s, std::int64_t queued = 0, std::int64_t shed = 0) {
    resizer.apply(state, from_seconds(at_s), {.queued = queued, .shed = shed}, 100);
  }

  Fleet config;
  FleetState state;
  Resizer resizer{config.target_instances, config.autoscaler, 0};
};

void a_constant_fleet_never_changes() {
  Setup setup({});
  check(setup.resizer.next() == sim::kForever, "nothing is due");
  setup.apply(100, 1000, 1000);
  check(setup.state.started(0) == 4, "all are there");
}

void a_target_may_be_there_from_the_start() {
  Setup setup({.initial_instances = 2, .target_instances = 3});
  check(setup.resizer.next() == from_seconds(0), "now");
  setup.apply(0);
  check(setup.state.started(0) == 3 && setup.resizer.next() == sim::kForever, "one more");
}

void the_last_of_several_targets_counts() {
  Setup setup({.initial_instances = 2, .startup_s = 5});
  setup.resizer.set_target(0);
  setup.resizer.set_target(3);
  setup.apply(3);
  check(setup.state.started(0) == 3 && setup.resizer.next() == sim::kForever, "that was all");
  check(setup.state.num_ready() == 2, "the first two have not left");
}

void a_target_is_applied_once() {
  Setup setup({});
  setup.resizer.set_target(2);
  setup.apply(1);
  setup.state.resize(0, 4, from_seconds(1.5));
  setup.apply(2);
  check(setup.state.started(0) == 4, "not again");
}

// 25 queued requests recommend 3 instances, which are added one at a time.
void the_autoscaler_is_polled_periodically() {
  Setup setup({.initial_instances = 1, .autoscaler = prompt_scaler()});
  check(setup.resizer.next() == from_seconds(5), "the first poll");
  setup.apply(4.9, 25);
  check(setup.state.started(0) == 1, "not between polls");
  setup.apply(5, 25);
  check(setup.state.started(0) == 2 && setup.resizer.next() == from_seconds(10), "one more");
  setup.apply(5, 25);
  check(setup.state.started(0) == 2, "one poll an instant");
  setup.apply(10, 25);
  check(setup.state.started(0) == 3, "one more");
  setup.apply(15, 25);
  check(setup.state.started(0) == 3, "enough");
  setup.apply(20, 0);
  check(setup.state.started(0) == 2, "one less");
}

// 20 requests in the 10 s before the poll are 2 per second.
void the_autoscaler_sees_what_was_shed() {
  Setup setup({.initial_instances = 1, .autoscaler = prompt_scaler()});
  setup.apply(5, 0, 0);
  check(setup.state.started(0) == 1, "the least");
  setup.apply(10, 0, 20);
  check(setup.state.started(0) == 2, "two are wanted");
}

void target_and_autoscaler_work_side_by_side() {
  Setup setup({.initial_instances = 1, .autoscaler = prompt_scaler()});
  setup.apply(5, 0);
  setup.resizer.set_target(4);
  setup.apply(7, 0);
  check(setup.state.started(0) == 4 && setup.resizer.next() == from_seconds(10), "a poll");
  setup.apply(10, 0);
  check(setup.state.started(0) == 3, "from the target");
}

void the_simulation_bounds_a_fleet() {
  Setup setup({}, 2);
  setup.resizer.set_target(9);
  setup.apply(1);
  check(setup.state.started(0) == 2, "it has two");
}

}  // namespace

CASES(a_constant_fleet_never_changes, a_target_may_be_there_from_the_start,
      the_last_of_several_targets_counts, a_target_is_applied_once,
      the_autoscaler_is_polled_periodically, the_autoscaler_sees_what_was_shed,
      target_and_autoscaler_work_side_by_side, the_simulation_bounds_a_fleet);
