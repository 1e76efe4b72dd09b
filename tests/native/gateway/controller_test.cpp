// Every controller against steps worked out by hand, and the order in which a guard grants them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "check.h"
#include "gateway/controller/guard.h"
#include "sim/rng.h"

using namespace spillway::gateway;
using spillway::sim::Draws;
using spillway::sim::from_seconds;
using spillway::sim::Stream;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kSeed = 7;

bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

/// A guard that grants everything.
Guard open_guard() {
  Guard guard;
  guard.ceiling = 1e9;
  guard.demand_gate = false;
  guard.rounding = Rounding::none;
  return guard;
}

/// A governor that ticks every `tick_s`.
class Loop {
 public:
  Loop(const Guard& guard, const Controller& controller, double limit, double tick_s = 5)
      : governor_(guard, controller, limit, kSeed), tick_s_(tick_s) {}

  /// A tick with as many requests in flight as the limit allows.
  ControlStep tick(double value) {
    Reading reading;
    reading.value = value;
    reading.in_flight = reading.max_in_flight = static_cast<std::int64_t>(governor_.limit());
    return tick(reading);
  }
  ControlStep tick(const Reading& reading) {
    now_s_ += tick_s_;
    return governor_.tick(reading, from_seconds(now_s_));
  }
  Governor& governor() { return governor_; }
  double now_s() const { return now_s_; }

 private:
  Governor governor_;
  double tick_s_;
  double now_s_ = 0;
};

void check_step(const ControlStep& step, ControlAction action, double limit) {
  check(step.action == action, "the action is " + std::to_string(static_cast<int>(action)) +
                                   ", not " + std::to_string(static_cast<int>(step.action)));
  check(close(step.limit, limit),
        "the limit is " + std::to_string(limit) + ", not " + std::to_string(step.limit));
}

constexpr auto kHold = ControlAction::hold;
constexpr auto kIncrease = ControlAction::increase;
constexpr auto kDecrease = ControlAction::decrease;
constexpr auto kCooldown = ControlAction::cooldown;
constexpr auto kNoSignal = ControlAction::no_signal;

// ---- the guard

/// The controller of vllm-on-eks @ 0c78403, aimd.py, with its cap as the limit.
struct SlowTick {
  double target, band, factor;
  int cap_min, cap_max, cooldown_ticks;
  int cap, cooldown = 0;

  ControlAction operator()(double p99, bool has_demand) {
    if (std::isnan(p99)) return kNoSignal;
    if (cooldown > 0) {
      --cooldown;
      return kCooldown;
    }
    if (p99 > target * (1.0 + band)) {
      cap = std::max(cap_min, static_cast<int>(cap * factor));
      cooldown = cooldown_ticks;
      return kDecrease;
    }
    if (has_demand && p99 < target * (1.0 - band)) {
      cap = std::min(cap_max, cap + 1);
      return kIncrease;
    }
    return kHold;
  }
};

void order_equals_that_of_the_gateway() {
  for (std::uint64_t round = 0; round < 300; ++round) {
    Draws draws(round, Stream::arrivals, 0);
    Aimd aimd;
    aimd.band = std::vector{0.0, 0.2, 0.5}[draws.below(3)];
    aimd.decrease_factor = 0.3 + 0.65 * draws.uniform();
    Guard guard;
    guard.floor = static_cast<double>(1 + draws.below(20));
    guard.ceiling = guard.floor + static_cast<double>(draws.below(60));
    guard.cooldown_ticks = static_cast<std::int64_t>(draws.below(4));
    guard.clamps = Clamps::verbatim;
    const int start = 1 + static_cast<int>(draws.below(100));
    SlowTick slow{aimd.target_s,
                  aimd.band,
                  aimd.decrease_factor,
                  static_cast<int>(guard.floor),
                  static_cast<int>(guard.ceiling),
                  static_cast<int>(guard.cooldown_ticks),
                  start};
    Loop loop(guard, aimd, start);
    for (int i = 0; i < 300; ++i) {
      Reading reading;
      reading.value = draws.below(6) == 0 ? kNan : 2 + 0.8 * draws.normal() - 0.3;
      reading.in_flight = static_cast<std::int64_t>(draws.below(2));
      reading.queued = static_cast<std::int64_t>(draws.below(2));
      const ControlAction action = slow(reading.value, reading.in_flight > 0 || reading.queued > 0);
      check_step(loop.tick(reading), action, slow.cap);
    }
  }
}

void order_of_a_tick() {
  Guard guard;
  guard.floor = 10;
  guard.cooldown_ticks = 2;
  Loop loop(guard, Aimd{}, 16);
  check_step(loop.tick(3.0), kDecrease, 12);
  check_step(loop.tick(kNan), kNoSignal, 12);  // the cooldown pauses
  check_step(loop.tick(3.0), kCooldown, 12);
  check_step(loop.tick(1.0), kCooldown, 12);
  check_step(loop.tick(3.0), kDecrease, 10);  // 9 without the floor
  check_step(loop.tick(1.0), kCooldown, 10);
  check_step(loop.tick(1.0), kCooldown, 10);
  check_step(loop.tick(3.0), kDecrease, 10);  // still a decrease, with a cooldown
  check_step(loop.tick(1.0), kCooldown, 10);
  check_step(loop.tick(1.0), kCooldown, 10);
  check_step(loop.tick(1.0), kIncrease, 11);
  check_step(loop.tick(1.0), kIncrease, 12);  // no cooldown after a rise
  check_step(loop.tick(2.0), kHold, 12);
  check_step(loop.tick(2.4), kHold, 12);  // the band includes its edges
  check_step(loop.tick(1.6), kHold, 12);
}

void rises_need_demand() {
  Reading idle;
  idle.value = 1;
  Reading in_flight = idle;
  in_flight.in_flight = 3;
  Reading queued = idle;
  queued.queued = 1;
  Guard guard;
  Loop loop(guard, Aimd{}, 16);
  check_step(loop.tick(idle), kHold, 16);
  check_step(loop.tick(in_flight), kIncrease, 17);
  check_step(loop.tick(queued), kIncrease, 18);
  guard.demand = Demand::queued_only;
  Loop blind(guard, Aimd{}, 16);
  for (int i = 0; i < 100; ++i) check_step(blind.tick(in_flight), kHold, 16);
  check_step(blind.tick(queued), kIncrease, 17);
  guard.demand_gate = false;
  Loop ungated(guard, Aimd{}, 16);
  check_step(ungated.tick(idle), kIncrease, 17);
  idle.value = 3;
  check_step(Loop(Guard{}, Aimd{}, 16).tick(idle), kDecrease, 12);  // cuts do not
}

void clamps_from_outside() {
  Guard guard;
  guard.floor = 16;
  guard.ceiling = 128;
  guard.clamps = Clamps::verbatim;
  check_step(Loop(guard, Aimd{}, 256).tick(1.0), kIncrease, 128);  // the wrong way
  check_step(Loop(guard, Aimd{}, 4).tick(3.0), kDecrease, 16);     // the wrong way
  check_step(Loop(guard, Aimd{}, 256).tick(3.0), kDecrease, 192);
  check_step(Loop(guard, Aimd{}, 4).tick(1.0), kIncrease, 5);
  guard.clamps = Clamps::corrected;
  check_step(Loop(guard, Aimd{}, 256).tick(1.0), kIncrease, 256);
  check_step(Loop(guard, Aimd{}, 4).tick(3.0), kDecrease, 4);
  check_step(Loop(guard, Aimd{}, 256).tick(3.0), kDecrease, 192);
  check_step(Loop(guard, Aimd{}, 4).tick(1.0), kIncrease, 5);
}

void small_steps_add_up_whatever_is_in_force() {
  Mimd mimd;
  mimd.increase_ratio = 0.02;
  for (const Rounding rounding : {Rounding::floor, Rounding::nearest, Rounding::none}) {
    Guard guard;
    guard.rounding = rounding;
    Loop loop(guard, mimd, 10);
    double exact = 10;
    for (int i = 0; i < 40; ++i) {
      exact *= 1.02;
      const double due = rounding == Rounding::none    ? exact
                         : rounding == Rounding::floor ? std::floor(exact)
                                                       : std::round(exact);
      check_step(loop.tick(1.0), kIncrease, due);
    }
  }
}

void limit_can_be_set_from_outside() {
  Loop loop(Guard{}, Aimd{}, 16);
  check_step(loop.tick(1.0), kIncrease, 17);
  loop.governor().resize(40);
  check(loop.governor().limit() == 40, "it is in force at once");
  check_step(loop.tick(3.0), kDecrease, 30);
}

// ---- the controllers

void static_limit_never_moves() {
  Loop loop(Guard{}, StaticLimit{}, 16);
  for (const double value : {0.1, 1.0, 100.0}) check_step(loop.tick(value), kHold, 16);
}

void aimd_climbs_by_one_and_cuts_by_a_truncated_factor() {
  Loop loop(Guard{}, Aimd{}, 64);
  for (int i = 1; i <= 10; ++i) check_step(loop.tick(1.0), kIncrease, 64 + i);
  for (const int limit : {55, 41, 30, 22, 16, 12, 9, 6, 4, 3, 2, 1, 1}) {
    check_step(loop.tick(30.0), kDecrease, limit);
  }
  Aimd halving;
  halving.decrease_factor = 0.5;
  halving.band = 0;
  Loop spiral(Guard{}, halving, 16);
  for (const int limit : {8, 4, 2, 1, 1}) check_step(spiral.tick(2.001), kDecrease, limit);
  Aimd by_step;
  by_step.decrease = Decrease::step;
  Loop aisd(Guard{}, by_step, 10);
  for (const int limit : {6, 2, 1}) check_step(aisd.tick(3.0), kDecrease, limit);
}

// Five samples count like five thousand, and the p99 of a bucket is near its upper edge: 4.975 in
// (3, 5], which is far above 2.4, and 1.995 in (1.5, 2], which lies within the band 1.6 … 2.4.
void bucket_artefacts_decide() {
  check_step(Loop(Guard{}, Aimd{}, 64).tick(4.98), kDecrease, 48);
  check_step(Loop(Guard{}, Aimd{}, 64).tick(1.995), kHold, 64);
  Aimd no_band;
  no_band.band = 0;
  check_step(Loop(Guard{}, no_band, 64).tick(1.995), kIncrease, 65);
}

void mimd_moves_in_proportion() {
  Mimd mimd;
  mimd.decrease_ratio = 0.25;
  mimd.increase_ratio = 0.5;
  Loop loop(open_guard(), mimd, 64);
  check_step(loop.tick(2.5), kDecrease, 48);
  check_step(loop.tick(1.5), kIncrease, 72);
  check_step(loop.tick(2.0), kHold, 72);
}

void pid_by_hand() {
  Pid pid;
  pid.kp = 0.5;
  pid.ki_per_s = 0.02;
  pid.kd_s = 1;
  Loop loop(open_guard(), pid, 100);
  // e = ln 2 at first, without history: only the integral moves, by 0.02 × 5 × ln 2.
  const double ln2 = std::numbers::ln2;
  double limit = 100 * std::exp(0.1 * ln2);
  check_step(loop.tick(1.0), kIncrease, limit);
  // e = 0: −0.5 ln 2 of the proportional part, −ln 2 / 5 of the differential one.
  limit *= std::exp(-0.7 * ln2);
  check_step(loop.tick(2.0), kDecrease, limit);
  // e = 0 again: the differential part swings back.
  limit *= std::exp(ln2 / 5);
  check_step(loop.tick(2.0), kIncrease, limit);
  check_step(loop.tick(2.0), kHold, limit);
  // No tick without a signal; the time since the last one does not grow by it.
  check_step(loop.tick(kNan), kNoSignal, limit);
  // e = −ln 8: −0.5·ln 8 − 0.1·ln 8 − ln 8 / 5 is less than −0.7.
  limit *= std::exp(-0.7);
  check_step(loop.tick(16.0), kDecrease, limit);
  // A signal of 0 counts as the smallest signal, so the rise is bounded, too.
  limit *= std::exp(0.2);
  check_step(loop.tick(0.0), kIncrease, limit);
}

void pid_rests_where_it_is_held_back() {
  Pid pid;
  pid.kp = 0;
  pid.ki_per_s = 0.02;
  Guard guard = open_guard();
  guard.ceiling = 101;
  Loop loop(guard, pid, 100);
  check_step(loop.tick(1.0), kIncrease, 101);  // wanted more
  check_step(loop.tick(1.0), kHold, 101);      // and pauses
  check_step(loop.tick(2.5), kDecrease, 101 * std::exp(-0.1 * std::log(1.25)));
  Reading idle;
  idle.value = 1;
  Loop unloaded(open_guard(), pid, 100);
  check_step(unloaded.tick(idle), kHold, 100);
  idle.value = 4;
  check_step(unloaded.tick(idle), kHold, 100);
}

void vegas_by_hand() {
  Vegas vegas;
  vegas.probe_multiplier = 1e9;
  Loop loop(open_guard(), vegas, 20, 1);
  check_step(loop.tick(1.0), kHold, 20);  // the minimum latency
  check_step(loop.tick(0.8), kHold, 20);  // a new minimum
  // ⌊log₁₀ 20⌋ = 1. q = ⌈20 (1 − 0.8 / 0.8)⌉ = 0 ≤ 1: + 6.
  check_step(loop.tick(0.8), kIncrease, 26);
  // q = ⌈26 (1 − 0.8 / 0.83)⌉ = ⌈0.94⌉ = 1: + 6.
  check_step(loop.tick(0.83), kIncrease, 32);
  // q = ⌈32 (1 − 0.8 / 0.84)⌉ = ⌈1.52⌉ = 2 < 3: + 1.
  check_step(loop.tick(0.84), kIncrease, 33);
  // q = ⌈33 (1 − 0.8 / 0.875)⌉ = ⌈2.83⌉ = 3 and q = ⌈33 (1 − 0.8 / 0.96)⌉ = ⌈5.5⌉ = 6: nothing.
  check_step(loop.tick(0.875), kHold, 33);
  check_step(loop.tick(0.96), kHold, 33);
  // q = ⌈33 (1 − 0.8 / 1)⌉ = 7 > 6: − 1.
  check_step(loop.tick(1.0), kDecrease, 32);
  // Less than half of the limit in use: nothing.
  Reading reading;
  reading.value = 0.8;
  reading.max_in_flight = 15;
  check_step(loop.tick(reading), kHold, 32);
  reading.max_in_flight = 16;
  reading.shed = 5;  // the gateway's own rejections are not drops
  check_step(loop.tick(reading), kIncrease, 38);

  // From 100 on the unit is 2: q = 0 adds 12, q = ⌈112 × 0.04⌉ = 5 < 6 adds 2.
  Loop large(open_guard(), vegas, 100, 1);
  large.tick(0.96);
  check_step(large.tick(0.96), kIncrease, 112);
  check_step(large.tick(1.0), kIncrease, 114);

  vegas.shed_is_drop = true;
  vegas.smoothing = 0.5;
  Loop dropping(open_guard(), vegas, 20, 1);
  dropping.tick(0.8);
  check_step(dropping.tick(reading), kDecrease, 19.5);  // half of − 1
  reading.max_in_flight = 0;
  check_step(dropping.tick(reading), kDecrease, 19);  // regardless of the use
}

void vegas_measures_anew() {
  Vegas vegas;
  vegas.probe_multiplier = 0.5;
  Draws draws(kSeed, Stream::controller, 0);
  Loop loop(open_guard(), vegas, 20, 1);
  check_step(loop.tick(1.0), kHold, 20);
  int passed = 1;
  double latency = 1.5;
  for (int probe = 0; probe < 20; ++probe) {
    // A queue of ⌈20 / 3⌉ = 7 cuts at each tick, until the latency becomes the minimum.
    const int due = static_cast<int>(std::ceil((0.5 + 0.5 * draws.uniform()) * 0.5 * 20));
    check(due >= 5 && due <= 10, "between half of the interval and all of it");
    while (++passed < due) {
      check_step(loop.tick(latency), kDecrease, 19);
      loop.governor().resize(20);
    }
    check_step(loop.tick(latency), kHold, 20);
    passed = 0;
    latency *= 1.5;
  }
}

void gradient2_by_hand() {
  Loop loop(open_guard(), Gradient2{}, 20, 1);
  // The first mean is the sample: gradient min(1, 1.5) = 1: 20 × 0.8 + (20 + 4) × 0.2.
  check_step(loop.tick(1.0), kIncrease, 20.8);
  // Mean (1 + 4) / 2 = 2.5: gradient 1.5 × 2.5 / 4 = 0.9375.
  double limit = 20.8 * 0.8 + (20.8 * 0.9375 + 4) * 0.2;
  check_step(loop.tick(4.0), kIncrease, limit);
  // Mean 9 / 3 = 3 … (1 + 4 + 40) / 3 = 15: gradient 0.5625.
  limit = limit * 0.8 + (limit * 0.5625 + 4) * 0.2;
  check_step(loop.tick(40.0), kDecrease, limit);
  // Mean (45 + 3) / 4 = 12, more than twice the latency: it becomes 11.4. Gradient 1.
  limit = limit * 0.8 + (limit + 4) * 0.2;
  check_step(loop.tick(3.0), kIncrease, limit);
  // During the warm-up the mean is computed from the sum, as in the original: (48 + 52) / 5 = 20.
  limit = limit * 0.8 + (limit * (1.5 * 20 / 52) + 4) * 0.2;
  check_step(loop.tick(52.0), kDecrease, limit);
  // Less than half of the limit in use.
  Reading reading;
  reading.value = 20;
  reading.max_in_flight = static_cast<std::int64_t>(limit / 2);
  check_step(loop.tick(reading), kHold, limit);

  // After the warm-up, exponentially with weight 2 / (N + 1).
  Gradient2 fast;
  fast.warm_up = 1;
  fast.long_window = 4;
  Loop warm(open_guard(), fast, 100, 1);
  check_step(warm.tick(1.0), kIncrease, 100.8);
  // Mean 0.6 × 1 + 0.4 × 11 = 5: gradient 1.5 × 5 / 11.
  limit = 100.8 * 0.8 + (100.8 * (1.5 * (5.0 / 11)) + 4) * 0.2;
  check_step(warm.tick(11.0), kDecrease, limit);
  // Mean 0.6 × 5 + 0.4 × 1 = 3.4, more than twice the latency: it becomes 3.23. Gradient 1.
  limit += 0.8;
  check_step(warm.tick(1.0), kIncrease, limit);
  // Mean 0.6 × 3.23 + 0.4 × 10 = 5.938.
  limit = limit * 0.8 + (limit * (1.5 * 0.5938) + 4) * 0.2;
  check_step(warm.tick(10.0), kDecrease, limit);
}

/// Samples of requests that were dispatched `age_s` ago.
void give(Loop& loop, int count, double value, double age_s = 0) {
  for (int i = 0; i < count; ++i) {
    loop.governor().sample(value, from_seconds(loop.now_s() - age_s), from_seconds(loop.now_s()));
  }
}

void envoy_gradient_by_hand() {
  EnvoyGradient envoy;
  envoy.interval_s = 10;
  envoy.jitter = 0.5;
  Draws draws(kSeed, Stream::controller, 0);
  Loop loop(open_guard(), envoy, 64, 1);
  // The first tick opens the window of the minimum latency for any value of the sensor.
  check_step(loop.tick(kNan), kDecrease, 3);
  give(loop, 100, 0.1, 0.5);  // dispatched before
  check_step(loop.tick(kNan), kHold, 3);
  give(loop, 25, 1.0);
  check_step(loop.tick(kNan), kHold, 3);
  give(loop, 25, 2.0);
  // The median, 1.5, is now known; the limit returns.
  check_step(loop.tick(kNan), kIncrease, 64);
  const double due_s = loop.now_s() - 1 + 10 * (1 + 0.5 * draws.uniform());
  check_step(loop.tick(kNan), kHold, 64);  // no samples
  // Gradient 1.5 × 1.25 / 1.875 = 1: 64 + √64.
  give(loop, 3, 1.875);
  check_step(loop.tick(kNan), kIncrease, 72);
  // Gradient ½ at least: 36 + √36.
  give(loop, 1, 100.0);
  check_step(loop.tick(kNan), kDecrease, 42);
  // Gradient 2 at most: 84 + √84 = 93.17, truncated.
  give(loop, 1, 0.1);
  check_step(loop.tick(kNan), kIncrease, 93);
  // The next window is due by interval and jitter.
  while (loop.now_s() + 1 < due_s) check_step(loop.tick(kNan), kHold, 93);
  check_step(loop.tick(kNan), kDecrease, 3);
  give(loop, 50, 4.0);
  check_step(loop.tick(kNan), kIncrease, 93);
}

void envoy_gradient_measures_anew_at_the_minimum() {
  EnvoyGradient envoy;
  envoy.interval_s = 1e6;
  envoy.min_concurrency = 5;
  Loop loop(open_guard(), envoy, 5, 1);
  loop.tick(kNan);
  give(loop, 50, 1.0);
  check_step(loop.tick(kNan), kHold, 5);
  // 2.5 + √2.5 = 4.08: the minimum, five times; then a window opens.
  for (int i = 0; i < 5; ++i) {
    give(loop, 1, 100.0);
    check_step(loop.tick(kNan), kHold, 5);
  }
  give(loop, 1, 1.0);  // the last one before the window does not count …
  check_step(loop.tick(kNan), kHold, 5);
  give(loop, 49, 100.0);
  check_step(loop.tick(kNan), kHold, 5);
  give(loop, 1, 100.0);  // … so this is the fiftieth
  check_step(loop.tick(kNan), kHold, 5);
  // The minimum latency is now 100. Ticks at the minimum limit are counted from 0 again.
  for (int i = 0; i < 4; ++i) {
    give(loop, 1, 1000.0);
    check_step(loop.tick(kNan), kHold, 5);
  }
  give(loop, 1, 100.0);
  check_step(loop.tick(kNan), kIncrease, 8);  // gradient 1.25: 6.25 + 2.5
}

void envoy_gradient_with_a_fixed_least_latency() {
  EnvoyGradient envoy;
  envoy.fixed_min_rtt_s = 1;
  Loop loop(open_guard(), envoy, 64, 1);
  check_step(loop.tick(kNan), kHold, 64);
  give(loop, 1, 1.25);
  check_step(loop.tick(kNan), kIncrease, 72);
}

// At 3 in flight and E(3) = 7.86 s, fifty samples of end-to-end latency take 50 / 3 × 7.86 = 131 s.
void envoy_gradient_stalls_while_it_measures() {
  Loop loop(open_guard(), EnvoyGradient{}, 64, 0.1);
  loop.tick(kNan);
  constexpr double kService_s = 7.86;
  double next_end_s = loop.now_s() + kService_s;
  while (loop.tick(kNan).limit == 3) {
    if (loop.now_s() < next_end_s) continue;
    give(loop, 3, kService_s, kService_s);
    next_end_s += kService_s;
  }
  check(loop.now_s() > 130 && loop.now_s() < 136, "the window lasts 131 s and a little");
}

void concur_by_hand() {
  Loop loop(Guard{}, Concur{}, 16);
  Reading reading;
  reading.value = kNan;  // not needed
  reading.in_flight = 16;
  reading.kv_utilization = 0.5;
  reading.hit_rate = 0.8;
  check_step(loop.tick(reading), kIncrease, 17);
  reading.hit_rate = 0.3;  // falls, but there is room
  check_step(loop.tick(reading), kIncrease, 18);
  reading.hit_rate = 0.8;
  reading.kv_utilization = 0.95;  // full, but hits are fine
  check_step(loop.tick(reading), kHold, 18);
  reading.hit_rate = 0.76;
  check_step(loop.tick(reading), kHold, 18);
  reading.hit_rate = 0.74;  // a slow fall adds up
  check_step(loop.tick(reading), kDecrease, 9);
  check_step(loop.tick(reading), kHold, 9);  // no further fall
  reading.hit_rate = 0.6;
  check_step(loop.tick(reading), kDecrease, 4);
}

}  // namespace

CASES(order_equals_that_of_the_gateway, order_of_a_tick, rises_need_demand, clamps_from_outside,
      small_steps_add_up_whatever_is_in_force, limit_can_be_set_from_outside,
      static_limit_never_moves, aimd_climbs_by_one_and_cuts_by_a_truncated_factor,
      bucket_artefacts_decide, mimd_moves_in_proportion, pid_by_hand,
      pid_rests_where_it_is_held_back, vegas_by_hand, vegas_measures_anew, gradient2_by_hand,
      envoy_gradient_by_hand, envoy_gradient_measures_anew_at_the_minimum,
      envoy_gradient_with_a_fixed_least_latency, envoy_gradient_stalls_while_it_measures,
      concur_by_hand);
