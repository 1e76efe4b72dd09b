// When an empty system skips what is periodic, and when its metrics stay the same.
#include "cluster/idle_spans.h"

#include <vector>

#include "actors.h"
#include "check.h"

using namespace spillway;
using cluster::Context;
using cluster::IdleSpans;
using cluster::Simulation;
using sim::from_seconds;
using sim::Phase;
using sim::Time;

namespace {

// The number of chances until the next one is taken, which skips `skipped`.
int chances(IdleSpans& spans, Time skipped, Time expected_end) {
  bool is_taken = false;
  for (int number = 1; number <= 5000; ++number) {
    const Time result = spans.skip(from_seconds(9), [&](Time until) {
      is_taken = true;
      check(until == expected_end, "up to the next event, or the end");
      return skipped;
    });
    if (is_taken) {
      check(result == skipped, "the time that was skipped");
      return number;
    }
    check(result == Time{0}, "nothing is skipped");
  }
  return 0;
}

void chances_are_taken_more_seldom_while_they_yield_nothing() {
  const Simulation simulation = simulation_of({{}});
  Context context(simulation, 1);
  IdleSpans spans(context, false);
  const Time end = from_seconds(9) + Time{1};
  std::vector<int> seen;
  for (int i = 0; i < 11; ++i) seen.push_back(chances(spans, Time{0}, end));
  check(seen == std::vector{8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096}, "twice as many");
  check(chances(spans, Time{1}, end) == 4096 && chances(spans, Time{1}, end) == 8, "one yields");
}

void periodic_events_do_not_end_an_idle_span() {
  const Simulation simulation = simulation_of({{}});
  Context context(simulation, 1);
  IdleSpans spans(context, false);
  for (const Phase phase : {Phase::controller_tick, Phase::telemetry, Phase::timeline_sample}) {
    context.events.push({from_seconds(1), phase, 0, 0});
  }
  check(chances(spans, Time{1}, from_seconds(9) + Time{1}) == 8, "only periodic ones are due");
  context.events.push({from_seconds(2), Phase::settings_change, 0, 0});
  check(chances(spans, Time{1}, from_seconds(2)) == 8, "another one is due");
  IdleSpans reference(context, true);
  check(chances(reference, Time{1}, Time{0}) == 0, "a reference run skips nothing");
}

void metrics_are_steady_once_the_last_scrape_has_arrived() {
  Simulation simulation = simulation_of({{}});
  simulation.signals = signals::Scraped{.period_s = 1, .phase_s = 0.25, .delay_s = 0.5};
  Context context(simulation, 1);
  IdleSpans spans(context, false);
  gateway::GatewayCounters counters;
  const auto is_steady = [&](double at_s) {
    set_clock(context, at_s);
    return spans.has_steady_metrics(counters);
  };
  check(!is_steady(3.5) && is_steady(3.75), "three periods, phase and delay from the start");
  counters.attempts = counters.rejected = 1;
  check(!is_steady(4), "a request has been there since");
  check(!is_steady(7.5) && is_steady(7.75), "from then on");

  simulation.signals = signals::Scraped{.loss_probability = 0.1};
  Context lossy(simulation, 1);
  set_clock(lossy, 1e6);
  check(!IdleSpans(lossy, false).has_steady_metrics({}), "a scrape may be lost");
  simulation.signals = signals::Live{};
  Context live(simulation, 1);
  check(IdleSpans(live, false).has_steady_metrics({}), "at once");
}

}  // namespace

CASES(chances_are_taken_more_seldom_while_they_yield_nothing,
      periodic_events_do_not_end_an_idle_span, metrics_are_steady_once_the_last_scrape_has_arrived);
