// Which workers are busy, case by case: the rules of Dynamo's frontend.
#include "signals/busy_monitor.h"

#include <optional>
#include <string>
#include <vector>

#include "check.h"

using spillway::signals::BusyMonitor;
using spillway::signals::BusyWorkers;
using spillway::signals::RankLoad;
using spillway::sim::InstanceId;
using spillway::sim::Time;

namespace {

constexpr InstanceId kWorker{std::size_t{0}};
constexpr InstanceId kOther{std::size_t{1}};

/// Thresholds of every kind: half of the KV blocks, 1,000 tokens, 1.5 batches.
BusyMonitor all() {
  return {.active_decode_blocks_threshold = 0.5,
          .active_prefill_tokens_threshold = 1000,
          .active_prefill_tokens_threshold_frac = 1.5};
}
BusyMonitor decode_only() { return {.active_decode_blocks_threshold = 0.5}; }
BusyMonitor frac_only(double frac) { return {.active_prefill_tokens_threshold_frac = frac}; }

/// An idle rank of 100 blocks, with a batch of 333 tokens.
RankLoad idle() {
  return {.active_decode_blocks = 0,
          .kv_used_blocks = 0,
          .kv_total_blocks = 100,
          .active_prefill_tokens = 0,
          .max_num_batched_tokens = 333};
}
RankLoad active(std::int64_t blocks) {
  RankLoad load = idle();
  load.active_decode_blocks = blocks;
  return load;
}
RankLoad used(std::int64_t blocks) {
  RankLoad load = idle();
  load.kv_used_blocks = blocks;
  return load;
}
RankLoad prefill(std::int64_t tokens) {
  RankLoad load = idle();
  load.active_prefill_tokens = tokens;
  return load;
}
RankLoad of_total(RankLoad load, std::optional<std::int64_t> total) {
  load.kv_total_blocks = total;
  return load;
}
RankLoad of_batch(RankLoad load, std::optional<std::int64_t> tokens) {
  load.max_num_batched_tokens = tokens;
  return load;
}

struct Case {
  std::string name;
  BusyMonitor config;
  std::vector<RankLoad> ranks;
  bool is_busy;
};

void one_report() {
  BusyMonitor without_latch = decode_only();
  without_latch.decode_latch = false;
  BusyMonitor any = all();
  any.busy_rank_share = 0;
  BusyMonitor half = all();
  half.busy_rank_share = 0.5;
  const std::vector<Case> cases{
      {"no threshold, everything full", {}, {active(100)}, false},
      {"nothing known", all(), {}, false},
      {"nothing known, any rank", any, {}, false},
      {"idle", all(), {idle()}, false},
      {"own blocks at the threshold", all(), {active(50)}, false},
      {"own blocks above it", all(), {active(51)}, true},
      {"reported blocks at the threshold", all(), {used(50)}, false},
      {"reported blocks above it", all(), {used(51)}, true},
      {"reported blocks without the latch", without_latch, {used(100)}, false},
      {"own blocks without the latch", without_latch, {active(51)}, true},
      {"total of zero", all(), {of_total(active(1000), 0)}, false},
      {"total unknown", all(), {of_total(active(1000), std::nullopt)}, false},
      {"threshold of zero, idle", {.active_decode_blocks_threshold = 0.0}, {idle()}, false},
      {"threshold of zero, one block", {.active_decode_blocks_threshold = 0.0}, {active(1)}, true},
      {"threshold of one, full", {.active_decode_blocks_threshold = 1.0}, {active(100)}, false},
      {"tokens at floor(1.5 x 333)", all(), {prefill(499)}, false},
      {"tokens above it", all(), {prefill(500)}, true},
      {"tokens at the absolute threshold", all(), {of_batch(prefill(1000), std::nullopt)}, false},
      {"tokens above it", all(), {of_batch(prefill(1001), std::nullopt)}, true},
      {"either threshold: tokens suffice", decode_only(), {prefill(1000000)}, false},
      {"batch unknown counts as ten million",
       frac_only(0.5),
       {of_batch(prefill(5000000), std::nullopt)},
       false},
      {"above half of ten million", frac_only(0.5), {of_batch(prefill(5000001), 0)}, true},
      {"one rank of four", all(), {active(100), idle(), idle(), idle()}, false},
      {"three ranks of four", all(), {active(100), prefill(9999), used(99), idle()}, false},
      {"all ranks, each for its reason",
       all(),
       {active(100), prefill(9999), used(99), active(51)},
       true},
      {"any rank", any, {idle(), idle(), idle(), active(100)}, true},
      {"any rank, none busy", any, {idle(), idle()}, false},
      {"half of the ranks", half, {active(100), idle(), idle(), prefill(9999)}, true},
      {"less than half of the ranks", half, {active(100), idle(), idle(), idle()}, false},
  };
  for (const Case& scenario : cases) {
    BusyWorkers workers(scenario.config, 2);
    check(!workers.is_busy(kWorker, Time{0}), scenario.name + ": before any report");
    if (!scenario.ranks.empty()) workers.report(kWorker, scenario.ranks);
    check(workers.is_busy(kWorker, Time{0}) == scenario.is_busy, scenario.name);
    check(!workers.is_busy(kOther, Time{0}), scenario.name + ": another worker");
  }
}

void the_latch_opens_when_both_signals_are_low() {
  BusyWorkers workers(decode_only(), 1);
  const auto report = [&](const RankLoad& load) {
    workers.report(kWorker, std::vector{load});
    return workers.is_busy(kWorker, Time{0});
  };
  const RankLoad own_low{.active_decode_blocks = 10};
  const RankLoad own_high{.active_decode_blocks = 90};
  const RankLoad used_low{.kv_used_blocks = 10};
  const RankLoad used_high{.kv_used_blocks = 90};
  check(!report(idle()), "idle");
  check(report(used_high), "set by one signal");
  check(report(own_low), "the other one does not clear it");
  check(report(own_high), "nor when it is high itself");
  check(report(used_low), "nor the first alone");
  // Without further reports of the gateway's own count, it stays.
  for (int i = 0; i < 100; ++i) check(report(used_low), "stuck");
  check(!report(own_low), "the last values of both are low");
}

void what_is_not_told_stands() {
  BusyWorkers workers(all(), 1);
  workers.report(kWorker, std::vector{prefill(2000)});
  workers.report(kWorker, std::vector{RankLoad{.kv_used_blocks = 0}});
  check(workers.is_busy(kWorker, Time{0}), "tokens were not reported again");
  workers.report(kWorker, std::vector{RankLoad{.active_prefill_tokens = 0}});
  check(!workers.is_busy(kWorker, Time{0}), "now they were");
}

void marks_last_until_the_next_load_event() {
  for (const BusyMonitor& config : {BusyMonitor{}, all()}) {
    BusyWorkers workers(config, 2);
    workers.mark_overloaded(kWorker, Time{0});
    check(workers.is_busy(kWorker, Time{0}) && !workers.is_busy(kOther, Time{0}), "marked");
    workers.report(kOther, std::vector{idle()});
    check(workers.is_busy(kWorker, Time{0}), "another worker's load event");
    workers.report(kWorker, std::vector{idle()});
    check(!workers.is_busy(kWorker, Time{0}), "its own, whatever it says");
  }
}

void unknown_workers_are_ignored() {
  BusyWorkers workers(all(), 1);
  workers.report(kOther, std::vector{active(100)});
  check(!workers.is_busy(kOther, Time{0}) && !workers.is_busy(kWorker, Time{0}), "of another pool");
}

void thresholds_change_with_load_events() {
  BusyMonitor config = decode_only();
  BusyWorkers workers(config, 2);
  const auto report = [&](InstanceId worker, const RankLoad& load) {
    workers.report(worker, std::vector{load});
  };
  report(kWorker, active(30));
  report(kOther, active(30));
  check(!workers.is_busy(kWorker, Time{0}) && !workers.is_busy(kOther, Time{0}),
        "30 of 100 at 0.5");
  config.active_decode_blocks_threshold = 0.2;
  workers.set_thresholds(config);
  check(!workers.is_busy(kWorker, Time{0}), "no load event has arrived");
  // The next one is of the other worker; then all workers are evaluated.
  report(kOther, active(10));
  check(workers.is_busy(kWorker, Time{0}) && !workers.is_busy(kOther, Time{0}),
        "30 and 10 of 100 at 0.2");
  config.active_prefill_tokens_threshold = 5;
  workers.set_thresholds(config);
  report(kOther, prefill(6));
  check(workers.is_busy(kOther, Time{0}), "6 tokens at 5");
  check(workers.is_busy(kWorker, Time{0}), "still at 0.2");
  config.active_decode_blocks_threshold.reset();
  workers.set_thresholds(config);
  report(kOther, prefill(6));
  check(!workers.is_busy(kWorker, Time{0}), "without a threshold");
  check(workers.is_busy(kOther, Time{0}), "the tokens' threshold stays");
}

void a_mark_outlasts_new_thresholds_until_the_first_load_event() {
  BusyWorkers workers(BusyMonitor{}, 2);
  workers.mark_overloaded(kWorker, Time{0});
  workers.set_thresholds(all());
  workers.report(kOther, std::vector{idle()});
  check(workers.is_busy(kWorker, Time{0}), "nothing is known of its load");
  workers.report(kWorker, std::vector{idle()});
  workers.mark_overloaded(kWorker, Time{0});
  workers.set_thresholds(BusyMonitor{});
  workers.report(kOther, std::vector{idle()});
  check(workers.is_busy(kWorker, Time{0}), "nor by what was known before");
}

void after_its_cooldown_a_worker_is_as_busy_as_it_was() {
  BusyMonitor config = all();
  config.overload_cooldown_s = 1;
  BusyWorkers workers(config, 1);
  const Time within = spillway::sim::from_seconds(0.5);
  const Time later = spillway::sim::from_seconds(1);
  workers.report(kWorker, std::vector{prefill(2000)});
  workers.mark_overloaded(kWorker, Time{0});
  check(workers.is_busy(kWorker, within) && workers.is_busy(kWorker, later), "over its threshold");
  workers.report(kWorker, std::vector{prefill(0)});
  workers.mark_overloaded(kWorker, Time{0});
  check(workers.is_busy(kWorker, within) && !workers.is_busy(kWorker, later), "and below it");
}

}  // namespace

CASES(one_report, the_latch_opens_when_both_signals_are_low, what_is_not_told_stands,
      marks_last_until_the_next_load_event, unknown_workers_are_ignored,
      thresholds_change_with_load_events, a_mark_outlasts_new_thresholds_until_the_first_load_event,
      after_its_cooldown_a_worker_is_as_busy_as_it_was);
