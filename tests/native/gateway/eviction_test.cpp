// The evictor by hand: its victims, their number, and the time of the next decision.
#include "gateway/eviction.h"

#include <cstdint>
#include <vector>

#include "check.h"
#include "sim/ids.h"
#include "sim/time.h"

using spillway::gateway::Eviction;
using spillway::gateway::Evictor;
using spillway::sim::from_seconds;
using spillway::sim::RequestId;

namespace {

// With `in_flight` requests and a ceiling of a half: as many as are above.
std::vector<std::uint64_t> evicted(Evictor& evictor, double now_s, std::int64_t in_flight,
                                   std::int64_t below = 0) {
  std::vector<RequestId> victims;
  evictor.relieve({.saturation = 1, .ceiling = 0.5, .in_flight = in_flight, .below = below},
                  from_seconds(now_s), victims);
  std::vector<std::uint64_t> ids;
  for (const RequestId id : victims) ids.push_back(id.value);
  return ids;
}

using Ids = std::vector<std::uint64_t>;

void least_important_go_first_and_of_equals_the_last() {
  Evictor evictor(Eviction{.max_victims = 2});
  const std::int64_t priorities[] = {-1, -2, -2, 0, -1};
  for (std::uint64_t id = 0; id < 5; ++id) evictor.dispatched(RequestId{id}, priorities[id]);
  check(evicted(evictor, 0, 5) == Ids{2, 1}, "three are above the ceiling, two may go");
}

void candidates_of_the_bands_own_priority_stay() {
  Evictor evictor(Eviction{.max_victims = 5});
  evictor.dispatched(RequestId{0}, -1);
  evictor.dispatched(RequestId{1}, -2);
  check(evicted(evictor, 0, 2, -1) == Ids{1}, "only lower priorities");
}

void next_decision_waits_for_the_victims() {
  Evictor evictor(Eviction{.max_victims = 1, .grace_s = 1, .timeout_s = 10});
  for (std::uint64_t id = 0; id < 4; ++id) evictor.dispatched(RequestId{id}, -1);
  check(evicted(evictor, 0, 4) == Ids{3}, "the first");
  check(evicted(evictor, 9, 4).empty(), "it is still there");
  check(evicted(evictor, 10, 4) == Ids{2}, "no longer waited for");
  evictor.ended(RequestId{3}, from_seconds(11));
  check(evicted(evictor, 13, 3).empty(), "one is awaited");
  evictor.ended(RequestId{2}, from_seconds(14));
  check(evicted(evictor, 14.5, 2).empty(), "grace");
  check(evicted(evictor, 15, 2) == Ids{1}, "after it");
}

// Requests that cannot be evicted have no row, whatever their ids.
void others_may_end() {
  Evictor evictor(Eviction{.max_victims = 2});
  evictor.dispatched(RequestId{0}, -1);
  for (std::uint64_t id = 1; id < 6; ++id) {
    evictor.dispatched(RequestId{id}, 0);
    evictor.ended(RequestId{id}, from_seconds(1));
  }
  check(evicted(evictor, 2, 1) == Ids{0}, "the candidate is still one");
  evictor.ended(RequestId{0}, from_seconds(3));
  check(evicted(evictor, 20, 1).empty(), "and has gone");
}

}  // namespace

CASES(least_important_go_first_and_of_equals_the_last, candidates_of_the_bands_own_priority_stay,
      next_decision_waits_for_the_victims, others_may_end);
