// The counts of anomalies, against their definitions written as plain loops over pairs.
#include "metrics/anomalies.h"

#include <algorithm>
#include <vector>

#include "check.h"
#include "sim/rng.h"

using namespace spillway;
using metrics::QueueStay;

namespace {

std::int64_t inversions_by_pairs(const std::vector<QueueStay>& stays) {
  std::int64_t pairs = 0;
  for (const QueueStay& low : stays) {
    for (const QueueStay& high : stays) {
      const bool are_rivals = low.instance == high.instance && low.priority < high.priority;
      // When one is scheduled, the other is in the queue and stays there.
      if (are_rivals && low.is_scheduled && high.entered <= low.ended && low.ended < high.ended) {
        ++pairs;
      }
    }
  }
  return pairs;
}

// Few instants, so that there are ties.
std::vector<QueueStay> random_stays(sim::Draws& draws) {
  const std::uint64_t instants = 1 + draws.below(60);
  const std::uint64_t instances = 1 + draws.below(3);
  const std::uint64_t priorities = 1 + draws.below(5);
  std::vector<QueueStay> stays(draws.below(80));
  for (QueueStay& stay : stays) {
    const auto entered = static_cast<std::int64_t>(draws.below(instants));
    const auto wait = static_cast<std::int64_t>(draws.below(instants));
    stay = {.entered = sim::Time{entered},
            .ended = draws.below(10) == 0 ? sim::kForever : sim::Time{entered + wait},
            .priority = static_cast<std::int64_t>(draws.below(priorities)) - 2,
            .instance = static_cast<std::int32_t>(draws.below(instances))};
    stay.is_scheduled = stay.ended != sim::kForever && draws.below(5) > 0;
  }
  return stays;
}

void inversions_are_the_pairs_of_the_definition() {
  std::int64_t total = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    sim::Draws draws(seed, sim::Stream::router, 0);
    std::vector<QueueStay> stays = random_stays(draws);
    const std::int64_t expected = inversions_by_pairs(stays);
    check(metrics::count_priority_inversions(stays) == expected, "as many as by pairs");
    total += expected;
  }
  check(total > 100'000, "there is something to count");
}

}  // namespace

CASES(inversions_are_the_pairs_of_the_definition);
