#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "blis_server.h"
#include "check.h"
#include "instance/step_loop/state.h"
#include "instance/step_loop/transitions.h"
#include "sim/event_queue.h"
#include "sim/rng.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

/// A small workload on one engine.
struct Workload {
  std::unique_ptr<spillway::workload::RequestTable> requests;
  std::vector<spillway::instance::Entry> entries;  ///< in order of time
  /// For each entry, the request that is withdrawn just before it, if it is inside.
  std::vector<spillway::sim::RequestId> withdrawn;
  spillway::instance::InstanceGroup group = blis_server();
  std::int64_t quantum_ns = 1;
  bool reports = false;
};

/// A random mix: schedulers, little and much memory, chunked prompts, shared prefixes, both
/// completions, step times that depend on the context.
inline Workload random_workload(std::uint64_t seed) {
  using namespace spillway;
  sim::Draws draws(seed, sim::Stream::arrivals, 0);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(high - low + 1)));
  };
  const auto one_of = [&]<class T>(std::initializer_list<T> values) {
    return values.begin()[draws.below(values.size())];
  };
  Workload work;
  auto all = std::make_shared<workload::Requests>();
  all->tenants = {"default"};
  all->slo_classes = {"high", "low"};
  all->segment_begin = {0};
  const std::int64_t count = between(1, 25);
  const std::int64_t longest_gap = one_of({0, 300, 5000}) * 1000;
  const std::int32_t longest_input = one_of({4, 40, 120});
  const std::int32_t longest_output = one_of({3, 40, 200});
  const bool is_short_of_memory = draws.below(2) == 0;
  std::int64_t at = 0;
  std::int64_t tokens = 0;
  std::int64_t largest = 1;
  for (std::size_t i = 0; std::cmp_less(i, count); ++i) {
    auto input = static_cast<std::int32_t>(between(1, longest_input));
    const auto output = static_cast<std::int32_t>(between(0, longest_output));
    if (draws.below(2) == 0) {
      // Prompts share their beginnings only if these are equally long.
      const std::int32_t shared = one_of({3, 16, 40});
      all->segments.push_back({draws.below(2), static_cast<std::uint32_t>(shared)});
      input += shared;
    }
    all->arrival.push_back({at});
    all->input_tokens.push_back(input);
    all->output_tokens.push_back(output);
    all->tenant.push_back(0);
    all->slo_class.push_back(static_cast<std::uint16_t>(draws.below(2)));
    all->segment_begin.push_back(static_cast<std::uint32_t>(all->segments.size()));
    work.entries.push_back({sim::RequestId{i}, {at}});
    work.withdrawn.push_back(sim::RequestId{draws.below(3) == 0 ? draws.below(i + 1) : i});
    at += between(0, longest_gap);
    tokens += input + output;
    largest = std::max<std::int64_t>(largest, input + output);
  }
  instance::InstanceGroup& group = work.group;
  group.block_size_tokens = one_of({1, 3, 16});
  const std::int64_t room = is_short_of_memory ? largest + tokens / 10 : tokens + 40;
  group.num_kv_blocks = room / group.block_size_tokens + between(0, 3);
  group.max_num_seqs = one_of({2, 8, 256});
  group.max_num_batched_tokens = one_of({8, 40, 2048});
  group.long_prefill_token_threshold = one_of({0, 3});
  group.completion = static_cast<instance::Completion>(draws.below(2));
  group.preemption = static_cast<instance::Preemption>(draws.below(2));
  if (draws.below(3) == 0) group.scheduler = instance::Sjf{};
  if (draws.below(3) == 0) {
    group.scheduler =
        instance::PriorityFcfs{.victim = static_cast<instance::Victim>(draws.below(2)),
                               .preemption_margin = 1 + static_cast<std::int64_t>(draws.below(4))};
  }
  group.latency = instance::Linear{.beta0_us = one_of({0.0, 100.0, 691.4}),
                                   .beta_prefill_us = one_of({0.0, 10.0}),
                                   .beta_decode_us = one_of({1.0, 2.8}),
                                   .beta_context_us = one_of({0.0, 0.25})};
  if (draws.below(3) == 0) {
    group.latency = instance::Roofline{.constant_us = one_of({0.0, 100.0}),
                                       .weights_us = 300,
                                       .expert_weights_us = one_of({0.0, 200.0}),
                                       .expert_share = 0.125,
                                       .token_us = one_of({1.0, 20.0}),
                                       .norm = one_of({1.0, 1.5, 4.0}),
                                       .decode_us = 2.8,
                                       .decode_context_us = one_of({0.0, 0.25}),
                                       .prefill_context_us = one_of({0.0, 0.02}),
                                       .chunk_us = 7};
  }
  if (draws.below(5) == 0) {
    group.latency = instance::StepTable{
        .decode_requests = {0, 3, 9},
        .prefill_tokens = {0, 64},
        .context_tokens = {16, 200},
        .step_us = {300, 300, 900, 900, 340, 700, 1000, 1300, 500, 1900, 1100, 2400},
        .prefill_context_us = one_of({0.0, 0.02}),
        .decode_scale = one_of({1.0, 1.2}),
        .prefill_scale = one_of({1.0, 0.8})};
  }
  group.kv_cache.prefix_caching = draws.below(2) == 0;
  group.kv_cache.allocation = static_cast<instance::Allocation>(draws.below(4) / 3);
  group.async_scheduling = group.completion == instance::Completion::step_end &&
                           group.preemption == instance::Preemption::keep_emitted &&
                           group.kv_cache.allocation == instance::Allocation::check_then_act &&
                           draws.below(2) == 0;
  if (group.kv_cache.allocation == instance::Allocation::check_then_act && draws.below(3) == 0) {
    group.kv_cache.reserve_full_prompt = draws.below(2) == 0;
    group.kv_cache.watermark = one_of({0.0, 0.3});
  }
  work.reports = !group.async_scheduling && draws.below(4) == 0;
  work.quantum_ns = one_of({1, 1000});
  work.requests = std::make_unique<workload::RequestTable>(
      all, std::vector<workload::Tenant>{},
      std::vector<workload::SloClass>{{.name = "high", .priority = 2},
                                      {.name = "low", .priority = -1}},
      sim::Time{0});
  return work;
}

struct SilentListener final : spillway::workload::RequestListener {
  void first_token(spillway::sim::RequestId) override {}
  void finished(spillway::sim::RequestId) override {}
  void released(spillway::sim::RequestId) override {}
};

/// A state of an engine and the request states that it writes; the test performs the steps.
class Walker {
 public:
  explicit Walker(const Workload& work)
      : states_(empty_journal(work)),
        environment_{.requests = *work.requests,
                     .states = states_,
                     .events = events_,
                     .listener = listener_,
                     .quantum_ns = work.quantum_ns,
                     .reports_latencies = work.reports,
                     .meters_tokens = true},
        settings_(
            std::make_shared<spillway::instance::EngineSettings>(work.group, 0u, environment_)),
        state(*settings_, work.group, true),
        recorder_(0, *settings_, environment_) {}
  /// An independent copy.
  Walker(const Walker& other)
      : states_(other.states_),
        environment_{.requests = other.environment_.requests,
                     .states = states_,
                     .events = events_,
                     .listener = listener_,
                     .quantum_ns = other.environment_.quantum_ns,
                     .reports_latencies = other.environment_.reports_latencies,
                     .meters_tokens = true},
        settings_(other.settings_),
        state(other.state),
        recorder_(0, *settings_, environment_) {}
  Walker& operator=(const Walker&) = delete;

  bool is_stepping() const { return state.activity == spillway::instance::Activity::stepping; }
  bool wants_step() const { return state.activity == spillway::instance::Activity::step_requested; }
  void enter(const spillway::instance::Entry& entry) {
    if (!can_hold(state, entry.id)) return;
    join_queue(state, recorder_, entry.id, entry.at);
    request_step();
  }
  void withdraw(spillway::sim::RequestId id, spillway::sim::Time now) {
    const auto is_it = [id](const auto& leaving) { return leaving.id == id; };
    if (states_.outcome[id.index()] != spillway::workload::Outcome::running ||
        std::any_of(state.leaving.begin(), state.leaving.end(), is_it)) {
      return;
    }
    spillway::instance::withdraw(state, recorder_, {id, spillway::workload::Outcome::cancelled},
                                 now);
  }
  void start(spillway::sim::Time now) {
    start_step(state, recorder_, now);
    check_memory(state, spillway::sim::InstanceId{0});
  }
  void end() {
    end_step(state, recorder_, state.jump.end);
    check_memory(state, spillway::sim::InstanceId{0});
    request_step();
  }
  /// Cuts the current jump to a single step.
  void cut() {
    state.jump.steps = state.jump.begun;
    state.jump.end = state.jump.end_of_step();
  }
  /// Runs until all requests have ended.
  void run_out(spillway::sim::Time now) {
    while (is_stepping() || wants_step()) {
      if (is_stepping()) {
        now = state.jump.end;
        end();
      } else {
        start(now);
      }
    }
  }

  /// All observable values of the state and of the request states.
  std::vector<std::int64_t> all() const {
    std::vector<std::int64_t> seen;
    const auto add = [&](auto... values) {
      (seen.push_back(static_cast<std::int64_t>(values)), ...);
    };
    const auto& s = state;
    const std::int64_t late = s.memory.free() - free_blocks(s);
    const spillway::instance::KvCounts kv = kv_counts(s);
    add(s.activity, s.next_entry, free_blocks(s), s.memory.takeable_without_eviction() - late,
        s.memory.num_named_in_use(), kv.hits, kv.misses, kv.lookups, kv.most_in_use,
        s.demand_blocks, s.waiting.tokens(), s.waiting.size(), s.decoders.size(),
        s.decoders.context_tokens(), s.slots.size());
    if (is_stepping()) {
      add(s.jump.start.ns, s.jump.duration.ns, s.jump.begun, s.jump.steps, s.jump.end.ns,
          s.jump.effects_taken);
    }
    for (std::size_t i = 0; i < s.waiting.size(); ++i) {
      const auto& waiting = s.waiting[i];
      add(waiting.id.value, waiting.emitted, waiting.rank, waiting.last_token.ns,
          waiting.has_returned());
    }
    for (const auto& slot : s.slots) {
      add(slot.id.value, slot.entry, slot.emitted, slot.computed, slot.holding.blocks,
          slot.holding.returned, slot.last_token.ns, slot.is_cached);
    }
    for (const auto& leaving : s.leaving) add(leaving.id.value, leaving.outcome);
    for (const auto& decoder : s.decoders.members()) {
      add(decoder.id.value, decoder.entry, s.decoders.emitted(decoder),
          s.decoders.computed(decoder), decoder.returned);
    }
    const auto& c = s.counters;
    add(c.entered, c.completed, c.cancelled, c.preemptions, c.steps, c.tokens_emitted,
        c.waiting_after_steps, c.last_event.ns, s.waiting_since.ns, c.waiting_time_s * 1e9);
    for (const std::int64_t tokens : s.emitted_by_group) add(tokens);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      add(states_.enqueued[i].ns, states_.scheduled[i].ns, states_.first_token[i].ns,
          states_.finished[i].ns, states_.emitted[i], states_.preemptions[i], states_.outcome[i]);
      if (states_.reports) add(states_.reported_ttft[i].ns);
    }
    spillway::workload::TokenGaps gaps = states_.token_gaps;
    gaps.close();
    spillway::workload::GapIndex::Room room;
    for (std::size_t group = 0; group < environment_.requests.num_groups(); ++group) {
      for (const auto& [gap, times] : gaps.exact({&group, 1}, room)) add(gap, times);
    }
    return seen;
  }
  const spillway::workload::RequestStates& states() const { return states_; }

 private:
  static spillway::workload::RequestStates empty_journal(const Workload& work) {
    spillway::workload::RequestStates states;
    states.reports = work.reports;
    states.resize(work.requests->capacity());
    states.token_gaps.resize(work.requests->num_groups(), false);
    return states;
  }
  void request_step() {
    using spillway::instance::Activity;
    if (state.activity == Activity::idle && has_work(state)) {
      state.activity = Activity::step_requested;
    }
  }

  spillway::workload::RequestStates states_;
  spillway::sim::EventQueue events_{1};
  SilentListener listener_;
  spillway::instance::Environment environment_;
  std::shared_ptr<const spillway::instance::EngineSettings> settings_;

 public:
  spillway::instance::EngineState state;

 private:
  spillway::instance::Recorder recorder_;
};
