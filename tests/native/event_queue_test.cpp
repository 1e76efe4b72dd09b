// Events come out by (time, phase, tie, order of creation), whatever the order in which they went
// in.
#include "sim/event_queue.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "check.h"
#include "sim/rng.h"

using spillway::sim::Draws;
using spillway::sim::Event;
using spillway::sim::EventQueue;
using spillway::sim::Phase;
using spillway::sim::Stream;
using spillway::sim::Time;

namespace {

void order_equals_that_of_a_stable_sort() {
  for (std::uint64_t round = 0; round < 200; ++round) {
    Draws draws(round, Stream::arrivals, 0);
    EventQueue queue;
    std::vector<Event> reference;
    const std::uint64_t size = draws.below(300);
    for (std::uint32_t i = 0; i < size; ++i) {
      const Event event{Time{static_cast<std::int64_t>(draws.below(5))},
                        static_cast<Phase>(draws.below(13)),
                        static_cast<std::uint32_t>(draws.below(3)), i};
      queue.push(event);
      reference.push_back(event);
    }
    std::stable_sort(reference.begin(), reference.end(), [](const Event& a, const Event& b) {
      return std::tie(a.time, a.phase, a.tie) < std::tie(b.time, b.phase, b.tie);
    });
    for (const Event& expected : reference) {
      check(queue.pop().subject == expected.subject, "events are in order");
    }
    check(queue.empty(), "nothing is left");
    check(queue.popped() == size, "every event was counted");
  }
}

void event_for_the_current_instant_takes_its_phase() {
  EventQueue queue;
  queue.push({Time{7}, Phase::admission, 0, 1});
  queue.push({Time{7}, Phase::admission, 1, 2});
  check(queue.pop().subject == 1, "the first admission");
  queue.push({Time{7}, Phase::queue_drain, 0, 3});
  check(queue.pop().subject == 3, "its drain precedes the next admission");
  check(queue.pop().subject == 2, "the second admission");
}

}  // namespace

int main() {
  order_equals_that_of_a_stable_sort();
  event_for_the_current_instant_takes_its_phase();
}
