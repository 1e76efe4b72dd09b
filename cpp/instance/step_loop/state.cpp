#include "instance/step_loop/state.h"

#include <limits>
#include <string>
#include <variant>

#include "sim/error.h"

namespace spillway::instance {

namespace {

std::int64_t cap(std::int64_t tokens) {
  return tokens > 0 ? tokens : std::numeric_limits<std::int64_t>::max();
}

Stepping stepping_of(const Environment& environment, const LatencyModel& latency) {
  if (environment.reference) return Stepping::reference;
  if (environment.lockstep) return Stepping::plain;
  return latency.basis() == LatencyBasis::step ? Stepping::plain : Stepping::jumps;
}

}  // namespace

EngineSettings::EngineSettings(const InstanceGroup& group, std::uint32_t engine,
                               const Environment& environment)
    : requests(environment.requests),
      quantum(environment.quantum_ns),
      max_num_seqs(group.max_num_seqs),
      max_num_batched_tokens(group.max_num_batched_tokens),
      prefill_cap(cap(group.long_prefill_token_threshold)),
      max_model_len(cap(group.max_model_len)),
      completion(group.completion),
      preemption(group.preemption),
      scheduler(std::visit([&](const auto& c) { return make(c, environment.requests); },
                           group.scheduler)),
      preempting(scheduler->preemption()),
      latency(std::visit(
          [&](const auto& c) { return make(c, environment.seed, sim::InstanceId{engine}); },
          group.latency)),
      stepping(stepping_of(environment, *latency)),
      keeps_sums(!environment.reference && latency->basis() != LatencyBasis::step),
      plans_ahead(group.async_scheduling),
      durations_vary(latency->basis() == LatencyBasis::context),
      step_overhead_us(group.output_overhead == OutputOverhead::in_step ? latency->output_us() : 0),
      reports(environment.reports_latencies),
      reported_overhead(group.output_overhead == OutputOverhead::in_step
                            ? sim::Time{0}
                            : quantum.truncate_us(latency->output_us())) {}

EngineState::EngineState(const EngineSettings& given, const InstanceGroup& group,
                         bool meters_tokens)
    : settings(given),
      memory(group.kv_cache, group.num_kv_blocks, group.block_size_tokens, given.requests),
      waiting(given.scheduler->sorts(), given.requests),
      decoders(given.requests, memory.block_size(), meters_tokens),
      emitted_by_group(meters_tokens ? given.requests.num_groups() : 0, 0) {}

void take_late_blocks(EngineState& s) {
  if (!s.takes_late) return;
  s.memory.take(s.memory.free() - free_blocks(s));
  s.takes_late = false;
}

KvCounts kv_counts(const EngineState& s) {
  KvCounts counts = s.memory.counts();
  const std::int64_t free = free_blocks(s);
  counts.misses += s.memory.free() - free;
  counts.most_in_use = std::max(counts.most_in_use, s.memory.total() - free);
  return counts;
}

void check_memory(const EngineState& s, sim::InstanceId id) {
  std::int64_t held = decoders_blocks(s) + s.memory.num_named_in_use();
  for (const Decoders::Member& member : s.decoders.members()) {
    held += s.memory.own_blocks({.prefix = member.prefix});
  }
  for (const Slot& slot : s.slots) held += s.memory.own_blocks(slot.holding);
  const std::int64_t free = free_blocks(s);
  sim::require(held + free == s.memory.total() && free >= 0,
               "instance " + std::to_string(id.value) + " holds " + std::to_string(held) +
                   " KV blocks and has " + std::to_string(free) + " free of " +
                   std::to_string(s.memory.total()));
}

}  // namespace spillway::instance
