// A livelock is suspected if one instant has more events than its participants can explain.
#include "cluster/livelock.h"

#include <cstdint>

#include "check.h"

using spillway::cluster::LivelockGuard;
using spillway::cluster::LivelockTally;
using spillway::sim::Phase;
using spillway::sim::Time;

namespace {

constexpr std::uint64_t kMany = 1'000'000;

void few_may_not_do_much() {
  LivelockGuard guard(1);
  check(!guard.suspects(Time{5}, 100, 1), "the first check has no reference");
  check(!guard.suspects(Time{5}, kMany, 1), "a million events are nothing");
  check(guard.suspects(Time{5}, 2 * kMany, 1), "two million of one request are a livelock");
}

void many_may_do_much() {
  LivelockGuard guard(1);
  check(!guard.suspects(Time{5}, 0, kMany), "a burst arrives");
  // The requests leave one by one.
  check(!guard.suspects(Time{5}, 10 * kMany, kMany / 2), "a burst takes many events");
  check(!guard.suspects(Time{5}, 20 * kMany, 0), "also once the requests have gone");
  check(guard.suspects(Time{5}, 30 * kMany, 0), "not any number");
}

void attempts_count() {
  LivelockGuard guard(1000);
  check(!guard.suspects(Time{5}, 0, 1000), "requests arrive");
  check(!guard.suspects(Time{5}, 20 * kMany, 1000), "each makes a thousand attempts");
  check(guard.suspects(Time{5}, 22 * kMany, 1000), "no more");
}

void time_that_advances_begins_anew() {
  LivelockGuard guard(1);
  for (std::int64_t i = 0; i < 100; ++i) {
    check(!guard.suspects(Time{i}, static_cast<std::uint64_t>(i) * kMany, 1), "the clock advances");
  }
}

void message_names_what_repeats() {
  LivelockTally tally;
  for (int i = 0; i < 3; ++i) tally.add(Phase::permit_release, "request 7");
  tally.add(Phase::source_arrival, "user 1");
  const std::string message = tally.message(Time{2'500'000'000});
  check(message.find("at 2.5 s") != std::string::npos, "the instant is named");
  check(message.find("Of the last 4, 3 are permit_release of request 7, 1 are arrival of user 1") !=
            std::string::npos,
        "the most frequent comes first");
}

}  // namespace

CASES(few_may_not_do_much, many_may_do_much, attempts_count, time_that_advances_begins_anew,
      message_names_what_repeats);
