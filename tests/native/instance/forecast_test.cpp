// Copies of an engine's state: they run ahead without changing the original, and match what it then
// does.
#include "instance/step_loop/forecast.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "sim/rng.h"
#include "step_loop_walker.h"

using namespace spillway;
using instance::Entry;
using sim::Time;

namespace {

/// A walker that has entered the workload's requests up to `moment`.
struct Stage {
  Walker walker;
  std::vector<Entry>::const_iterator next;
  Time now{0};
};

// Runs all events before `moment`, with or without withdrawals.
void run_until(Stage& stage, const Workload& work, Time moment, bool withdraws) {
  Walker& walker = stage.walker;
  while (true) {
    const Time entry = stage.next == work.entries.end() ? sim::kForever : stage.next->at;
    if (walker.is_stepping() && walker.state.jump.end <= entry) {
      if (walker.state.jump.end >= moment) return;
      stage.now = walker.state.jump.end;
      walker.end();
    } else if (walker.wants_step() && stage.now < entry) {
      walker.start(stage.now);
    } else {
      if (entry >= moment) return;
      stage.now = entry;
      if (withdraws) walker.withdraw(work.withdrawn[stage.next->id.index()], stage.now);
      walker.enter(*stage.next++);
    }
  }
}

void a_copy_does_what_the_original_will_do() {
  std::int64_t under_way = 0, in_jumps = 0, with_found_blocks = 0, leaving = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string where = "seed " + std::to_string(seed);
    const Workload work = random_workload(seed);
    sim::Draws draws(seed, sim::Stream::router, 0);
    Stage stage{Walker(work), work.entries.begin()};
    const std::int64_t last = work.entries.back().at.ns;
    const Time moment{static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(last + 1)))};
    run_until(stage, work, moment, true);
    Walker& original = stage.walker;
    under_way += original.is_stepping();
    in_jumps += instance::has_steps_ahead(original.state);
    with_found_blocks += !original.state.memory.counts_only();
    leaving += !original.state.leaving.empty();

    const std::vector<std::int64_t> before = original.all();
    Walker copy(original);
    copy.run_out(stage.now);
    check(original.all() == before, "the original stays, " + where);
    if (original.is_stepping()) check(copy.all() != before, "the copy went on, " + where);
    original.run_out(stage.now);
    check(original.all() == copy.all(), "both come to the same, " + where);
  }
  check(under_way > 500 && in_jumps > 200 && with_found_blocks > 200, "in all states");
  check(leaving > 50, "also where a request is about to leave");
}

void predictions_come_true() {
  std::int64_t waited = 0, refused = 0, ahead = 0, leaving = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string where = "seed " + std::to_string(seed);
    Workload work = random_workload(seed);
    if (seed % 5 == 0)
      work.group.num_kv_blocks = std::max<std::int64_t>(1, work.group.num_kv_blocks / 3);
    sim::Draws draws(seed, sim::Stream::router, 1);
    // Some of the last requests are in transit; the forecast is for the last of them.
    const Time moment = work.entries[draws.below(work.entries.size())].at;
    Stage stage{Walker(work), work.entries.begin()};
    run_until(stage, work, moment, true);
    const std::vector<Entry> coming(stage.next, work.entries.cend());
    const std::vector<std::int64_t> before = stage.walker.all();
    const Time predicted = predict_first_token(stage.walker.state, coming, stage.now);
    check(stage.walker.all() == before, "asking changes nothing, " + where);
    leaving += !stage.walker.state.leaving.empty();
    run_until(stage, work, sim::kForever, false);
    const std::size_t row = coming.back().id.index();
    check(predicted == stage.walker.states().first_token[row], "the first token, " + where);
    refused += !sim::is_set(predicted);
    waited += stage.walker.states().scheduled[row] > coming.back().at;
    ahead += coming.size() > 1;
  }
  check(waited > 500 && refused > 50 && ahead > 1000, "of all kinds");
  check(leaving > 50, "also where a request is about to leave");
}

}  // namespace

CASES(a_copy_does_what_the_original_will_do, predictions_come_true);
