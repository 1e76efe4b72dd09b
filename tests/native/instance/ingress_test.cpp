// The parts in front of an instance's engines, with scripted engines: data-parallel ranks, and the
// queue of an ingress.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "instance/ingress/queue.h"
#include "instance/instance.h"
#include "instance/ranks.h"
#include "requests_builder.h"
#include "sim/event_queue.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

using namespace spillway;
using instance::Instance;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

namespace {

/// A scripted instance that records its calls.
struct Scripted final : Instance {
  explicit Scripted(std::vector<std::string>& calls, std::string its_name = "")
      : log(calls), name(std::move(its_name)) {}

  std::vector<std::string>& log;
  std::string name;
  signals::InstanceSignal signal;
  signals::Capacity size;
  instance::Counters counted;
  std::int64_t cached = 0;
  std::int64_t emitted = 0;
  Time delay{0};

  void note(const std::string& what, RequestId id, std::size_t rank) {
    log.push_back(name + what + " " + std::to_string(id.value) + " at " + std::to_string(rank));
  }
  void enqueue(RequestId id, std::size_t rank, Time) override { note("enqueue", id, rank); }
  void cancel(RequestId id, std::size_t rank, Outcome, Time) override { note("cancel", id, rank); }
  void close(Time) override { log.push_back(name + "close"); }
  Time entry_delay(RequestId) const override { return delay; }
  void add_emitted(std::span<std::int64_t> by_group, Time) override { by_group[0] += emitted; }
  void note_emitted(Time) override {}
  Time next_token(Time) override { return sim::kForever; }
  instance::Stepping stepping() const override { return instance::Stepping::plain; }
  const instance::Counters& counters() const override { return counted; }
  signals::InstanceSignal read(Time) override { return signal; }
  signals::Occupancy occupancy() const override { return {signal.waiting, signal.running}; }
  signals::Capacity capacity() const override { return size; }
  std::int64_t cached_blocks(RequestId, Time) override { return cached; }
};

using Log = std::vector<std::string>;

// ---- ranks ---------------------------------------------------------------------------------

struct TwoRanks {
  Log log;
  instance::Ranks ranks;
  std::array<Scripted*, 2> parts{};

  TwoRanks() {
    for (std::size_t i = 0; i < 2; ++i) {
      auto part = std::make_unique<Scripted>(log, std::to_string(i) + ": ");
      parts[i] = part.get();
      ranks.add(std::move(part));
    }
  }
};

void the_least_loaded_rank_is_next() {
  TwoRanks two;
  check(two.ranks.next_rank() == 0, "the first of equals");
  two.ranks.sent(0);
  check(two.ranks.next_rank() == 1, "a request counts from its routing");
  two.ranks.sent(1);
  two.ranks.sent(1);
  check(two.ranks.next_rank() == 0, "one against two that wait");
  for (int i = 0; i < 2; ++i) two.ranks.sent(0);
  two.parts[0]->signal.running = 3;  // 3 against 4 × 2
  check(two.ranks.next_rank() == 0, "three that run weigh less than two that wait");
  two.parts[1]->signal.running = 2;  // 3 against 2
  check(two.ranks.next_rank() == 1, "those that run count, too");
  two.ranks.left(0);
  two.ranks.left(0);
  two.parts[0]->signal.running = 1;  // 1 against 2
  check(two.ranks.next_rank() == 0, "those that have left do not");
  two.parts[0]->signal.running = 0;  // 4 against 3
  two.ranks.sent(1);
  two.parts[1]->signal.running = 3;
  check(two.ranks.next_rank() == 1, "one that waits weighs more than three that run");
}

void calls_reach_their_rank() {
  TwoRanks two;
  two.ranks.enqueue(RequestId{5}, 1, {0});
  two.ranks.enqueue(RequestId{6}, 0, {0});
  two.ranks.cancel(RequestId{5}, 1, Outcome::cancelled, {0});
  check(two.log == Log{"1: enqueue 5 at 0", "0: enqueue 6 at 0", "1: cancel 5 at 0"},
        "each rank has its own requests");
  check(two.ranks.num_ranks() == 2 && &two.ranks.rank(1) == two.parts[1], "each can be read");
}

void ranks_are_read_as_one() {
  TwoRanks two;
  two.parts[0]->signal = {.waiting = 1,
                          .running = 2,
                          .kv_utilization = 0.5,
                          .free_blocks = 10,
                          .prefill_tokens = 7,
                          .prefix_hits = 3,
                          .prefix_lookups = 4};
  two.parts[1]->signal = {.waiting = 4,
                          .running = 8,
                          .kv_utilization = 0.25,
                          .free_blocks = 20,
                          .prefill_tokens = 1,
                          .prefix_hits = 1,
                          .prefix_lookups = 2};
  const signals::InstanceSignal all = two.ranks.read({9});
  check(all.waiting == 5 && all.running == 10 && all.free_blocks == 30 && all.prefill_tokens == 8 &&
            all.prefix_hits == 4 && all.prefix_lookups == 6 && all.measured == Time{9},
        "counts are sums");
  check(all.kv_utilization == 0.375, "utilization is a mean");
  const signals::Occupancy held = two.ranks.occupancy();
  check(held.waiting == 5 && held.running == 10, "so is the occupancy");

  two.parts[0]->size = {4, 100, 50, 16};
  const signals::Capacity capacity = two.ranks.capacity();
  check(capacity.max_num_seqs == 8 && capacity.max_num_batched_tokens == 200 &&
            capacity.num_kv_blocks == 100 && capacity.block_size_tokens == 16,
        "the capacity is that of all ranks");
  two.parts[0]->cached = 2;
  two.parts[1]->cached = 6;
  check(two.ranks.cached_blocks(RequestId{0}, {0}) == 6, "the rank that holds the most");
  two.parts[0]->emitted = 5;
  two.parts[1]->emitted = 6;
  std::vector<std::int64_t> emitted{100};
  two.ranks.add_emitted(emitted, {0});
  check(emitted[0] == 111, "tokens are added");
  two.parts[0]->delay = {77};
  check(two.ranks.entry_delay(RequestId{0}) == Time{77}, "the way is the same to all");
}

void counters_are_added_at_the_end() {
  TwoRanks two;
  two.parts[0]->counted = {
      .entered = 3, .completed = 2, .steps = 10, .peak_kv_utilization = 0.5, .last_event = {7}};
  two.parts[1]->counted = {
      .entered = 4, .completed = 1, .steps = 20, .peak_kv_utilization = 0.25, .last_event = {9}};
  two.ranks.close({10});
  const instance::Counters& all = two.ranks.counters();
  check(all.entered == 7 && all.completed == 3 && all.steps == 30, "sums");
  check(all.peak_kv_utilization == 0.5 && all.last_event == Time{9}, "and the largest");
}

// ---- the queue at an ingress ---------------------------------------------------------------

constexpr std::size_t kFirstReason = 1;
constexpr std::uint32_t kInstance = 3;
constexpr std::uint32_t kEngine = 0;

/// An ingress with a scripted engine; the test plays the engine and the run.
struct Gate final : workload::RequestListener {
  workload::RequestTable requests;
  workload::RequestStates states;
  sim::EventQueue events{1};
  Log log;
  std::vector<std::uint32_t> gone;        // departures of which the run was notified
  std::vector<std::uint32_t> returned;    // permits of which the run was notified
  std::vector<std::uint32_t> first_seen;  // first tokens of which the run was notified
  instance::IngressQueue queue;
  Scripted* engine = nullptr;

  explicit Gate(const instance::IngressRules& rules)
      : requests(some_requests(), {}, {}, {0}),
        queue(rules, kFirstReason, sim::InstanceId{kInstance}, kEngine,
              {.requests = requests, .states = states, .events = events, .listener = *this}) {
    states.resize(requests.capacity());
    auto inner = std::make_unique<Scripted>(log);
    engine = inner.get();
    queue.set_inner(std::move(inner));
  }
  static std::shared_ptr<const workload::Requests> some_requests() {
    RequestsBuilder builder;
    for (int i = 0; i < 10; ++i) builder.add(10, 10);
    return std::move(builder).build();
  }
  void first_token(RequestId id) override { first_seen.push_back(id.value); }
  void finished(RequestId id) override { gone.push_back(id.value); }
  void released(RequestId id) override { returned.push_back(id.value); }

  void arrive(std::uint32_t id, std::int64_t now, std::size_t rank = 0) {
    queue.enqueue(RequestId{std::size_t{id}}, rank, {now});
  }
  /// Effects of the engine on a request inside.
  void emit_first_token(std::uint32_t id, std::int64_t now) {
    states.first_token[id] = {now};
    queue.first_token(RequestId{std::size_t{id}});
  }
  void complete(std::uint32_t id, std::int64_t now) {
    states.outcome[id] = Outcome::completed;
    states.finished[id] = {now};
    queue.finished(RequestId{std::size_t{id}});
  }
  Outcome outcome(std::uint32_t id) const { return states.outcome[id]; }
  std::uint8_t reason(std::uint32_t id) const { return states.reason[id].index; }
  /// The next event must be this one.
  void expect(Phase phase, std::int64_t at, std::uint32_t subject) {
    sim::Event event;
    check(events.pop({at}, event), "an event is due");
    check(event.phase() == phase && event.time() == Time{at} && event.subject() == subject,
          "the event");
  }
  bool is_quiet() {
    sim::Event event;
    return !events.pop(sim::kForever, event);
  }
};

const std::uint32_t kPlace = instance::IngressSubject::place_became_free();

void requests_enter_up_to_the_limit() {
  Gate gate({.most_unfinished = 2, .queue_size = 2, .when_full = 4});
  gate.arrive(0, 10, 1);
  gate.arrive(1, 10);
  gate.arrive(2, 10, 1);
  gate.arrive(3, 10);
  gate.arrive(4, 10);
  check(gate.log == Log{"enqueue 0 at 1", "enqueue 1 at 0"}, "two enter at their ranks");
  check(gate.outcome(2) == Outcome::running && gate.outcome(3) == Outcome::running, "two wait");
  check(gate.outcome(4) == Outcome::rejected && gate.reason(4) == kFirstReason + 4,
        "one is refused");
  check(gate.gone == std::vector<std::uint32_t>{4}, "the run knows of it");
  gate.expect(Phase::permit_release, 10, 4);

  gate.complete(1, 30);
  gate.queue.released(RequestId{1});
  check(gate.returned == std::vector<std::uint32_t>{1}, "its permit returns to the run");
  gate.expect(Phase::ingress, 30, kPlace);
  gate.queue.admit_waiting({30});
  check(gate.log.back() == "enqueue 2 at 1", "the oldest takes the place");
  gate.queue.admit_waiting({30});
  check(gate.log.size() == 3, "there is one place");
  gate.complete(0, 40);
  gate.complete(2, 40);
  gate.expect(Phase::ingress, 40, kPlace);
  check(gate.is_quiet(), "one event gives all places of an instant");
  gate.arrive(5, 40);
  check(gate.log.size() == 5 && gate.log[3] == "enqueue 3 at 0" && gate.log[4] == "enqueue 5 at 0",
        "an arrival enters behind those that wait");

  const instance::IngressCounts& counts = *gate.queue.ingress();
  check(counts.entered_at_once == 3 && counts.entered_from_queue == 2 && counts.refused == 1 &&
            counts.unfinished == 2 && counts.queued == 0 && counts.most_queued == 2 &&
            counts.most_unfinished == 2,
        "the counts");
}

void first_tokens_free_places() {
  Gate gate({.most_awaiting_response = 1, .queue_size = 5});
  gate.arrive(0, 0);
  gate.arrive(1, 0);
  gate.arrive(2, 0);
  gate.emit_first_token(0, 8);
  gate.expect(Phase::ingress, 8, kPlace);
  gate.queue.admit_waiting({8});
  check(gate.log == Log{"enqueue 0 at 0", "enqueue 1 at 0"}, "the first one has responded");
  gate.complete(0, 9);
  gate.queue.admit_waiting({9});
  check(gate.log.size() == 2, "it does not free another place as it leaves");
  gate.complete(1, 10);  // without a first token of its own
  gate.queue.admit_waiting({10});
  check(gate.log.size() == 3, "one that leaves without a response does");
  check(gate.first_seen.empty(), "the run did not ask to be notified");
}

void those_that_wait_too_long_are_refused() {
  Gate gate({.most_unfinished = 1,
             .queue_size = 9,
             .longest_wait = {100},
             .newest_after_expiry = true,
             .when_expired = 2});
  gate.arrive(0, 0);
  gate.arrive(1, 10);
  gate.arrive(2, 20);
  gate.arrive(3, 30);
  gate.arrive(4, 40);
  gate.expect(Phase::instance_expiry, 110, kInstance);
  gate.queue.expire({110});
  check(gate.outcome(1) == Outcome::rejected && gate.reason(1) == kFirstReason + 2, "expired");
  check(gate.outcome(2) == Outcome::running, "the next one has time left");
  gate.expect(Phase::permit_release, 110, 1);
  gate.complete(0, 115);
  gate.queue.admit_waiting({115});
  check(gate.log.back() == "enqueue 4 at 0", "the newest enters after an expiry");
  gate.complete(4, 118);
  gate.queue.admit_waiting({118});
  check(gate.log.back() == "enqueue 2 at 0", "then the oldest again");
  gate.complete(2, 130);
  gate.queue.admit_waiting({130});
  check(gate.outcome(3) == Outcome::rejected && gate.log.size() == 3,
        "one whose time is over at the instant of a place does not get it");
}

void a_full_engine_refuses() {
  Gate gate(
      {.most_engine_requests = 4, .most_engine_tokens = 100, .when_full = 0, .when_tokens = 1});
  gate.engine->signal = {.waiting = 3, .prefill_tokens = 99};
  gate.arrive(0, 0);
  check(gate.log == Log{"enqueue 0 at 0"}, "below both limits");
  gate.engine->signal = {.waiting = 4, .prefill_tokens = 99};
  gate.arrive(1, 0);
  gate.engine->signal = {.waiting = 3, .prefill_tokens = 100};
  gate.arrive(2, 0);
  check(gate.log.size() == 1, "none enters at a limit");
  check(gate.reason(1) == kFirstReason && gate.reason(2) == kFirstReason + 1, "for its reason");
}

void withdrawals_come_from_the_queue_or_the_engine() {
  Gate gate({.most_unfinished = 1, .queue_size = 9});
  gate.arrive(0, 0, 1);
  gate.arrive(1, 0);
  gate.queue.cancel(RequestId{1}, 0, Outcome::evicted, {5});
  check(gate.outcome(1) == Outcome::evicted && gate.log.size() == 1, "it has left the queue");
  gate.expect(Phase::permit_release, 5, 1);
  gate.queue.cancel(RequestId{0}, 1, Outcome::cancelled, {5});
  check(gate.log.back() == "cancel 0 at 1", "the engine has the other");
}

void those_in_the_queue_are_counted_as_entered() {
  Gate gate({.most_unfinished = 1, .queue_size = 1});
  gate.engine->counted = {.entered = 1, .refused = 5};
  for (std::uint32_t id = 0; id < 4; ++id) gate.arrive(id, 0);
  gate.queue.close({9});
  const instance::Counters& counters = gate.queue.counters();
  check(gate.log.back() == "close", "the engine is closed, too");
  check(counters.entered == 2 && counters.refused == 7, "those of the engine and of the ingress");
}

}  // namespace

CASES(the_least_loaded_rank_is_next, calls_reach_their_rank, ranks_are_read_as_one,
      counters_are_added_at_the_end, requests_enter_up_to_the_limit, first_tokens_free_places,
      those_that_wait_too_long_are_refused, a_full_engine_refuses,
      withdrawals_come_from_the_queue_or_the_engine, those_in_the_queue_are_counted_as_entered);
