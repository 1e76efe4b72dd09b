// Jumps: several steps performed together equal the same steps one by one; and the functions for
// their number and their memory.
#include "instance/step_loop/jump.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "step_loop_walker.h"

using namespace spillway;
using instance::EngineState;
using sim::Time;

namespace {

/// How often the random workloads reached the tested states.
struct Coverage {
  std::int64_t jumps = 0;  ///< of several steps
  std::int64_t steps = 0;  ///< in these
  std::int64_t uneven = 0, early_effects = 0, with_prompts = 0, blocked = 0, cut = 0;
  std::int64_t short_of_memory = 0, with_named_blocks = 0, withdrawn = 0;
  std::int64_t late = 0, late_with_named_blocks = 0;

  void count(const EngineState& s) {
    ++jumps;
    steps += s.jump.steps;
    uneven += s.settings.durations_vary;
    early_effects += s.settings.completion == instance::Completion::step_start;
    with_prompts += !s.slots.empty();
    blocked += instance::is_blocked(s);
    with_named_blocks += !s.memory.counts_only();
    short_of_memory += instance::blocks_of_steps(s, s.jump.steps) > free_blocks(s);
    late += s.takes_late;
    late_with_named_blocks += s.takes_late && !s.memory.counts_only();
  }
};

/// The predictions at the start of a jump.
struct Promise {
  std::int64_t steps = 0;
  Time end{0};
  instance::StepLoad load;
  std::vector<std::int64_t> blocks;  ///< that the first k steps after the first take
  instance::Counters counters;
  std::int64_t misses = 0;
};

Promise promise_of(const EngineState& s) {
  Promise promise{.steps = s.jump.steps,
                  .end = s.jump.end,
                  .load = s.jump.load,
                  .counters = s.counters,
                  .misses = kv_counts(s).misses};
  for (std::int64_t k = 0; k < s.jump.steps; ++k) {
    promise.blocks.push_back(instance::blocks_of_steps(s, k));
  }
  return promise;
}

// Exactly the predicted number of steps find memory.
void check_memory_of_steps(const EngineState& s, const std::string& where) {
  const bool is_limited = instance::is_blocked(s) || !s.slots.empty();
  const std::int64_t free = is_limited ? s.memory.takeable_without_eviction() : s.memory.free();
  for (const std::int64_t most : {1, 7, 40}) {
    const std::int64_t fit = instance::steps_within_memory(s, most);
    check(fit >= 0 && fit <= most && instance::blocks_of_steps(s, fit) <= free,
          "the steps fit, " + where);
    check(fit == most || instance::blocks_of_steps(s, fit + 1) > free,
          "one more does not, " + where);
  }
}

// Both ways to count the decoders' blocks, and their bound, against one request after another.
void check_held_blocks(const instance::Decoders& decoders, std::int64_t block,
                       const std::string& where) {
  for (const std::int64_t steps : {0, 1, 7}) {
    std::int64_t held = 0;
    for (const auto& decoder : decoders.members()) {
      held += (decoders.computed(decoder) + steps + block - 1) / block;
    }
    check(decoders.held_blocks(steps) == held, "the blocks that decoders hold, " + where);
    check(decoders.most_held_blocks(steps) >= held, "and their bound, " + where);
  }
}

/// The same workload twice: with jumps, and with each of them cut to a single step.
class Pair {
 public:
  Pair(const Workload& work, std::string where, Coverage& coverage)
      : work_(work), jumping_(work), single_(work), where_(std::move(where)), coverage_(coverage) {}

  void operator()() {
    auto next = work_.entries.begin();
    while (next != work_.entries.end() || jumping_.is_stepping()) {
      Time now = jumping_.is_stepping() ? jumping_.state.jump.end : sim::kForever;
      if (next != work_.entries.end()) now = std::min(now, next->at);
      make_single_steps(now);
      end_jump(now);
      for (; next != work_.entries.end() && next->at == now; ++next) {
        const auto& waiting = jumping_.state.waiting;
        const bool from_queue = now.ns % 2 == 1 && !waiting.empty();
        withdraw(from_queue ? waiting.head().id : work_.withdrawn[next->id.index()], now);
        jumping_.enter(*next);
        single_.enter(*next);
        end_jump(now);  // it may have been cut
      }
      if (single_.wants_step()) start(now);
    }
    check(jumping_.all() == single_.all(), "the end, " + where_);
    check(jumping_.states().reported_decode == single_.states().reported_decode,
          "reported latencies, " + where_);
  }

 private:
  void withdraw(sim::RequestId id, Time now) {
    const std::int64_t cancelled = jumping_.state.counters.cancelled;
    jumping_.withdraw(id, now);
    single_.withdraw(id, now);
    end_jump(now);  // it may have been cut
    coverage_.withdrawn += jumping_.state.counters.cancelled > cancelled;
  }

  void end_jump(Time now) {
    if (jumping_.is_stepping() && jumping_.state.jump.end == now) jumping_.end();
  }

  // Up to the steps that end at `now`.
  void make_single_steps(Time now) {
    while (single_.is_stepping() && single_.state.jump.end <= now) {
      const Time end = single_.state.jump.end;
      single_.end();
      if (end == now) return;
      check(single_.wants_step(), "the batch stays during a jump, " + where_);
      start_single(end);
    }
  }

  void start(Time now) {
    if (jumping_.is_stepping()) return start_single(now);  // a step within the jump
    if (promise_.end == now) {
      check(made_ == promise_.steps, "the number of steps, " + where_);
    } else {
      ++coverage_.cut;
    }
    check(jumping_.all() == single_.all(), "between two jumps, " + where_);
    jumping_.start(now);
    single_.start(now);
    made_ = 1;
    if (!jumping_.is_stepping()) {
      return check(!single_.is_stepping(), "nothing to do, " + where_);
    }
    promise_ = promise_of(jumping_.state);
    check_held_blocks(jumping_.state.decoders, work_.group.block_size_tokens, where_);
    if (instance::may_jump(jumping_.state) && !jumping_.state.takes_late) {
      check_memory_of_steps(jumping_.state, where_);
    }
    if (promise_.steps > 1) coverage_.count(jumping_.state);
    if (single_.state.jump.steps > 1) single_.cut();
  }

  // A step of the current jump: the batch is that of the jump's start.
  void start_single(Time now) {
    single_.start(now);
    const EngineState& s = single_.state;
    check(single_.is_stepping() && made_ < promise_.steps, "a step of the jump, " + where_);
    check(s.jump.load.prefill_tokens == promise_.load.prefill_tokens &&
              s.jump.load.decode_requests == promise_.load.decode_requests,
          "every step gives the same tokens, " + where_);
    check(s.counters.completed == promise_.counters.completed &&
              s.counters.preemptions == promise_.counters.preemptions,
          "no request leaves the batch in a jump, " + where_);
    check(kv_counts(s).misses - promise_.misses == promise_.blocks[static_cast<std::size_t>(made_)],
          "the blocks that the steps take, " + where_);
    ++made_;
    if (s.jump.steps > 1) single_.cut();
  }

  const Workload& work_;
  Walker jumping_;
  Walker single_;
  Promise promise_;
  std::int64_t made_ = 0;  // steps of the jump that were performed singly
  std::string where_;
  Coverage& coverage_;
};

void a_jump_equals_its_steps() {
  Coverage all;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Workload work = random_workload(seed);
    Pair(work, "seed " + std::to_string(seed), all)();
  }
  check(all.jumps > 20000 && all.steps > 5 * all.jumps, "jumps are long");
  check(all.uneven > 1000 && all.early_effects > 1000 && all.with_prompts > 1000, "of all kinds");
  check(all.blocked > 1000 && all.cut > 1000 && all.with_named_blocks > 1000, "in all states");
  check(all.short_of_memory > 100 && all.withdrawn > 1000, "and ended by memory or withdrawals");
  check(all.late > 1000 && all.late_with_named_blocks > 1000 && all.jumps - all.late > 1000,
        "blocks are taken late or as they grow");
}

// ---- lengths worked out by hand ------------------------------------------------------------

Workload one_request(std::int32_t input, std::int32_t output) {
  auto all = std::make_shared<workload::Requests>();
  all->arrival = {{0}};
  all->input_tokens = {input};
  all->output_tokens = {output};
  all->tenant = {0};
  all->slo_class = {0};
  all->tenants = {"default"};
  all->slo_classes = {"standard"};
  Workload work;
  work.requests = std::make_unique<workload::RequestTable>(
      all, std::vector<workload::Tenant>{}, std::vector<workload::SloClass>{}, Time{0});
  work.entries = {{sim::RequestId{0}, {0}}};
  return work;
}

// Steps of the jumps that serve the only request.
std::vector<std::int64_t> lengths(const Workload& work) {
  Walker walker(work);
  std::vector<std::int64_t> steps;
  walker.enter(work.entries[0]);
  Time now{0};
  while (walker.wants_step()) {
    walker.start(now);
    steps.push_back(walker.state.jump.steps);
    now = walker.state.jump.end;
    walker.end();
  }
  return steps;
}

void a_lone_request_takes_two_jumps() {
  Workload work = one_request(100, 50);
  const std::vector<std::int64_t> whole{1, 49};
  check(lengths(work) == whole, "its prompt, then all other tokens");
  work.group.completion = instance::Completion::step_start;
  const std::vector<std::int64_t> early{1, 48, 1};
  check(lengths(work) == early, "where effects come first, the last step stands by itself");
  work.group.completion = instance::Completion::step_end;
  work.group.long_prefill_token_threshold = 30;
  const std::vector<std::int64_t> chunks{3, 1, 49};
  check(lengths(work) == chunks, "chunks of equal size, then the one that completes the prompt");
  work.group.latency = instance::Linear{.beta_context_us = 0.25};
  work = one_request(100, 700);
  work.group.latency = instance::Linear{.beta_context_us = 0.25};
  const std::vector<std::int64_t> uneven{1, 256, 256, 187};
  check(lengths(work) == uneven, "uneven jumps are not longer than 256 steps");
}

}  // namespace

CASES(a_jump_equals_its_steps, a_lone_request_takes_two_jumps);
