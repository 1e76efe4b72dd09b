// The loop that moves a limit: the measurements of the sensor, the readings and effects of a tick.
#include "gateway/control_loop.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "offered.h"

using namespace spillway;
using gateway::ControlAction;
using gateway::ControlLoop;
using gateway::ControlRecord;
using signals::SensorSource;
using sim::from_seconds;
using sim::RequestId;
using workload::Outcome;

namespace {

/// A limit that records its settings.
class MovedLimit final : public gateway::LimitPolicy {
 public:
  bool is_open(const gateway::Occasion&) const override { return true; }
  bool may_start(const signals::RequestView&, const gateway::Occasion&) const override {
    return true;
  }
  void started(const signals::RequestView&) override {}
  void ended(const signals::RequestView&) override {}
  std::optional<double> setting() const override { return setting_; }
  std::optional<double> permits() const override { return std::nullopt; }
  void resize(double setting) override {
    setting_ = setting;
    ++resized;
  }

  int resized = 0;

 private:
  double setting_ = 10;
};

/// An instance with scripted metrics.
class Reporting final : public signals::SignalSource {
 public:
  signals::InstanceSignal read(sim::Time) override { return signal; }
  signals::Occupancy occupancy() const override { return {}; }
  signals::Capacity capacity() const override { return {}; }
  std::int64_t cached_blocks(RequestId, sim::Time) override { return 0; }

  signals::InstanceSignal signal;
};

// The mean of all samples, with a minimum of one. The controller adds one below 1.6 s and halves
// the limit above 2.4 s.
gateway::Gateway config_of(SensorSource source) {
  gateway::Gateway config;
  config.controller = gateway::Aimd{.target_s = 2, .band = 0.2, .decrease_factor = 0.5};
  config.sensor.source = source;
  config.sensor.aggregation = signals::Aggregation::mean;
  config.sensor.min_samples = 1;
  return config;
}

/// A loop around a limit of 10, and a request that arrived at 1 s and has ten tokens.
struct ControlSetup {
  explicit ControlSetup(const gateway::Gateway& config) : loop(config, limit, *table, 7, 1) {}
  const ControlRecord& tick(double now_s, std::int64_t in_flight = 1, std::int64_t queued = 0) {
    loop.tick(in_flight, queued, nullptr, from_seconds(now_s));
    return loop.log().back();
  }

  std::unique_ptr<workload::RequestTable> table = make_table({{.arrival_s = 1}});
  signals::RequestView request{*table, RequestId{0}};
  MovedLimit limit;
  ControlLoop loop;
};

void a_tick_without_samples_moves_nothing() {
  ControlSetup setup(config_of(SensorSource::ttft));
  const ControlRecord& done = setup.tick(5);
  check(done.action == ControlAction::no_signal && std::isnan(done.value), "no signal");
  check(done.samples == 0 && setup.limit.resized == 0 && done.setting == 10, "as it was");
  check(done.at == from_seconds(5) && done.replica == 7 && done.in_flight == 1, "what it notes");
  check(std::isnan(done.permits), "the limit counts no requests");
}

void what_the_sensor_measures_moves_the_limit() {
  ControlSetup setup(config_of(SensorSource::ttft));
  setup.loop.first_token(setup.request, from_seconds(1), from_seconds(1), from_seconds(2));
  const ControlRecord raised = setup.tick(5);
  check(raised.action == ControlAction::increase && raised.value == 1, "1 s is fast");
  check(raised.setting == 11 && setup.limit.setting() == 11, "one more");
  setup.loop.first_token(setup.request, from_seconds(1), from_seconds(1), from_seconds(10));
  const ControlRecord cut = setup.tick(11);
  check(cut.action == ControlAction::decrease && cut.value == 5 && cut.samples == 2, "5 s is slow");
  check(cut.setting == 5 && setup.limit.setting() == 5, "half");
  check(setup.loop.log().size() == 2, "one entry for each tick");
}

// The life of a request contributes one sample per source.
void each_source_has_its_moment() {
  const auto value_of = [](SensorSource source) {
    ControlSetup setup(config_of(source));
    setup.loop.dispatched(setup.request, 1, from_seconds(1.5));
    setup.loop.first_token(setup.request, from_seconds(1.5), from_seconds(1.75), from_seconds(2));
    setup.loop.ended(setup.request, Outcome::completed, from_seconds(1.5), from_seconds(6));
    const ControlRecord done = setup.tick(7);
    check(done.samples == 1, "one sample");
    return done.value;
  };
  check(value_of(SensorSource::queue_delay) == 0.5, "from arrival to dispatch");
  check(value_of(SensorSource::ttft) == 1, "from arrival to the first token");
  check(value_of(SensorSource::engine_ttft) == 0.25, "from the engine's queue on");
  check(value_of(SensorSource::e2e) == 5, "from arrival to the end");
  check(value_of(SensorSource::e2e_per_token) == 0.5, "that by token");
}

void refusals_count_where_they_are_included() {
  const auto samples_of = [](SensorSource source, bool includes, Outcome outcome) {
    gateway::Gateway config = config_of(source);
    config.sensor.includes_refusals = includes;
    ControlSetup setup(config);
    setup.loop.ended(setup.request, outcome, from_seconds(1), from_seconds(3));
    return setup.tick(5).samples;
  };
  for (const SensorSource source : {SensorSource::ttft, SensorSource::e2e}) {
    check(samples_of(source, true, Outcome::rejected) == 1, "a worker refused it");
    check(samples_of(source, false, Outcome::rejected) == 0, "which is left out");
    check(samples_of(source, true, Outcome::cancelled) == 0, "its client gave up");
  }
}

// Vegas rises if at least half of the limit was in use, and falls if a request was shed, since the
// last tick.
void counts_are_since_the_last_tick() {
  gateway::Gateway config = config_of(SensorSource::ttft);
  config.controller = gateway::Vegas{.threshold = 1, .beta = 6, .shed_is_drop = true};
  ControlSetup setup(config);
  setup.loop.first_token(setup.request, from_seconds(1), from_seconds(1), from_seconds(2));
  check(setup.tick(5).action == ControlAction::hold, "it has only now seen a latency");
  setup.loop.dispatched(setup.request, 9, from_seconds(5));
  setup.loop.dispatched(setup.request, 2, from_seconds(5));
  check(setup.tick(6).setting == 16, "nine of ten were in use");
  check(setup.tick(7).action == ControlAction::hold, "no longer");
  setup.loop.shed();
  check(setup.tick(8).setting == 15, "one was shed");
  check(setup.tick(9).action == ControlAction::hold, "none since");
}

void nothing_rises_without_demand() {
  ControlSetup setup(config_of(SensorSource::ttft));
  setup.loop.first_token(setup.request, from_seconds(1), from_seconds(1), from_seconds(2));
  check(setup.tick(5, 0, 0).action == ControlAction::hold, "nothing is there");
  check(setup.tick(6, 0, 1).action == ControlAction::increase, "one waits");
  check(setup.tick(7, 1, 0).action == ControlAction::increase, "one is in flight");
}

// CONCUR cuts when memory is full and the hit rate has fallen from its best value.
void the_hit_rate_is_of_what_was_looked_up_since_the_last_tick() {
  gateway::Gateway config = config_of(SensorSource::hit_rate);
  config.controller =
      gateway::Concur{.high_kv_utilization = 0.5, .hit_rate_fall = 0.1, .decrease_factor = 0.5};
  ControlSetup setup(config);
  std::vector<Reporting> fleet(2);
  std::vector<signals::SignalSource*> instances{&fleet[0], &fleet[1]};
  const std::vector<std::int32_t> in_flight{0, 0};
  const signals::Sources sources{.instances = instances};
  const signals::LocalState local{.in_flight = in_flight};
  const auto tick = [&](std::int64_t hits, std::int64_t lookups, double kv_utilization) {
    fleet[0].signal = {
        .kv_utilization = kv_utilization, .prefix_hits = hits / 2, .prefix_lookups = lookups / 2};
    fleet[1].signal = {.kv_utilization = kv_utilization,
                       .prefix_hits = hits - hits / 2,
                       .prefix_lookups = lookups - lookups / 2};
    const sim::Time now = from_seconds(static_cast<double>(setup.loop.log().size() + 1));
    const signals::View view(sources, local, now);
    setup.loop.tick(1, 0, &view, now);
    return setup.loop.log().back();
  };
  check(tick(0, 0, 0.2).value == 0, "nothing was looked up");
  check(setup.limit.setting() == 11, "memory has room");
  check(tick(75, 100, 0.9).value == 0.75, "of the first hundred");
  check(setup.limit.setting() == 11, "full, but the rate is the best");
  check(tick(100, 200, 0.9).value == 0.25, "of the second hundred, not of both");
  check(setup.limit.setting() == 5, "it has fallen");
  check(tick(100, 200, 0.2).value == 0.25, "no look-up leaves it as it was");
}

void memory_use_is_the_mean_of_the_fleet() {
  ControlSetup setup(config_of(SensorSource::kv_utilization));
  std::vector<Reporting> fleet(2);
  fleet[0].signal.kv_utilization = 0.75;
  fleet[1].signal.kv_utilization = 0.25;
  std::vector<signals::SignalSource*> instances{&fleet[0], &fleet[1]};
  const std::vector<std::int32_t> in_flight{0, 0};
  const signals::Sources sources{.instances = instances};
  const signals::LocalState local{.in_flight = in_flight};
  const signals::View view(sources, local, {});
  setup.loop.tick(1, 0, &view, from_seconds(1));
  check(setup.loop.log().back().value == 0.5, "of both");
}

}  // namespace

CASES(a_tick_without_samples_moves_nothing, what_the_sensor_measures_moves_the_limit,
      each_source_has_its_moment, refusals_count_where_they_are_included,
      counts_are_since_the_last_tick, nothing_rises_without_demand,
      the_hit_rate_is_of_what_was_looked_up_since_the_last_tick,
      memory_use_is_the_mean_of_the_fleet);
