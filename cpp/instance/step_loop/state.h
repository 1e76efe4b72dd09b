#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "instance/group.h"
#include "instance/instance.h"
#include "instance/kv_cache/holding.h"
#include "instance/kv_cache/kv_cache.h"
#include "instance/latency/latency.h"
#include "instance/scheduler/scheduler.h"
#include "instance/step_loop/decoders.h"
#include "instance/step_loop/waiting_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// The constant settings of an engine.
struct EngineSettings {
  /// `engine`: its position among the run's engines.
  EngineSettings(const InstanceGroup& group, std::uint32_t engine, const Environment& environment);

  const workload::RequestTable& requests;
  sim::Quantum quantum;
  std::int64_t max_num_seqs;
  std::int64_t max_admitting_seqs;  ///< with as many in the batch none is admitted
  std::int64_t max_num_batched_tokens;
  std::int64_t prefill_cap;       ///< prompt tokens of one request in one step
  bool varies_cap;                ///< the cap also depends on the number of requests
  bool adapts_cap;                ///< it rises if they are few
  bool chunks_prompts;            ///< the prompt of a waiting request may be computed in parts
  std::int64_t prefill_interval;  ///< steps
  std::int64_t num_drafts;
  std::int64_t lookahead;            ///< tokens for which drafts hold memory
  std::int64_t tokens_behind_block;  ///< that must be known for it to be found
  std::int64_t slots_of_drafts;      ///< of every step's budget
  std::int64_t slots_per_part;       ///< of the budget, for each request that gets tokens
  std::vector<double> acceptance;
  std::uint64_t seed;
  EngineRules rules;
  /// Whether anything between `max_admitting_seqs` and `rules`, except the limits themselves, is
  /// set, requests have legs or migrate, steps are logged, or cached tokens are kept. Otherwise
  /// steps leave out what only these need: the general way with the defaults of all of them gives
  /// the same.
  bool has_special_rules;
  bool has_legs;
  /// Of requests that have begun in another instance; null: none may have.
  const std::vector<workload::Resumption>* resumptions;
  std::int64_t max_model_len;  ///< tokens of prompt and output together
  Completion completion;
  Preemption preemption;
  std::unique_ptr<const SchedulerPolicy> scheduler;
  PreemptionRules preempting;
  std::optional<PrefixOrder> prefix_order;
  std::unique_ptr<double> slowness;  ///< factor of the duration of steps; null: none may fail
  std::unique_ptr<const LatencyModel> latency;
  Stepping stepping;
  bool keeps_sums;              ///< requests that decode are kept as sums
  bool plans_ahead;             ///< the batch of a step is fixed when the step before it starts
  bool durations_vary;          ///< steps of an unchanged batch may differ in duration
  double step_overhead_us;      ///< of a step that emits a token
  bool reports;                 ///< write the `reported_*` columns
  sim::Time reported_overhead;  ///< of a token, in reported latencies alone
};

/// A request of the batch that is handled in every step.
struct Slot {
  sim::RequestId id;
  std::uint32_t entry = 0;   ///< order of entry into the batch
  std::int32_t emitted = 0;  ///< output tokens so far
  std::int32_t input_tokens = 0;
  std::int32_t target_output_tokens = 0;
  std::int32_t draft_steps = 0;     ///< steps so far that had drafts
  std::int64_t computed = 0;        ///< tokens whose KV is in the cache
  std::int64_t tokens = 0;          ///< tokens in the current step; between steps 0
  std::int64_t planned = 0;         ///< tokens in the step after it
  std::int32_t drafts = 0;          ///< of the tokens in the current step
  std::int32_t planned_drafts = 0;  ///< of those in the step after it
  std::int64_t findable = 0;        ///< tokens whose blocks have a content, with special rules
  Holding holding;                  ///< KV memory
  sim::Time last_token = sim::kUnset;
  bool is_cached = false;       ///< entered with its whole prompt cached, and gets no tokens for it
  bool is_padded = false;       ///< the drafts of the current step are empty
  bool is_padded_next = false;  ///< those of the step after it
  bool in_prompt = false;  ///< with special rules: its latest tokens are not the last known ones
  bool resumes = false;    ///< has emitted tokens in another instance, but none in this one
  Leg leg = Leg::whole;    ///< not `decode`: with its prompt in memory it is like any other

  /// Known tokens of the request: its prompt and its output so far.
  std::int64_t known_tokens() const { return std::int64_t{input_tokens} + emitted; }
  /// Known tokens whose KV is still to be computed.
  std::int64_t needed_tokens() const { return known_tokens() - computed; }
  bool is_decoding() const { return emitted > 0 && needed_tokens() == 1; }
  /// The current step computes its last known token, and so emits the next one.
  bool emits() const { return tokens > 0 && tokens - drafts == needed_tokens(); }
  /// The token of the current step is surely its last.
  bool is_finishing() const { return emits() && emitted + 1 == target_output_tokens; }
  /// The token at the end of the step is its last.
  bool has_finished() const { return emitted == target_output_tokens; }
};

/// A request with all its tokens.
struct Finished {
  std::uint32_t entry;
  sim::RequestId id;
  Holding holding;
  std::int64_t computed;
  std::int64_t findable;
};

/// A prompt in memory whose request is neither in the queue nor in the batch.
struct Prompt {
  sim::RequestId id;
  Holding holding;
  std::int64_t findable = 0;  ///< tokens whose blocks have a content
};

/// What a KV memory loses: what is cached, or also what the requests of the batch hold.
enum class KvLoss : std::uint8_t { none, cached, all };

/// A request of the batch that was withdrawn during a step.
struct Leaving {
  sim::RequestId id;
  workload::Outcome outcome;
};

/// Consecutive steps of an unchanged batch, of which the last may change it. They begin lazily:
/// `begun` of `steps` have begun, the latest at `start`; of those before it the effects of `silent`
/// are still to be applied.
struct Jump {
  sim::Time start{0};
  sim::Time duration{0};  ///< of the latest begun step
  StepLoad load;          ///< of the latest begun step
  bool emits = false;     ///< each of its steps emits an output token
  bool is_full = false;   ///< no request can join: no seat or no budget is left
  bool effects_taken = false;
  std::int64_t begun = 1;
  std::int64_t silent = 0;
  std::int64_t steps = 1;
  sim::Time end{0};  ///< of its last step

  sim::Time end_of_step() const { return start + duration; }
};

enum class Activity : std::uint8_t { idle, step_requested, stepping };

/// The state of an engine's requests. A copy is independent.
///
/// The batch consists of the decoders, which are kept as sums, and the slots. If not all decoders
/// can get their token, they become slots, and the step is performed request by request. With plain
/// stepping every jump is a single step; unless the engine `keeps_sums`, all requests are slots.
///
/// An engine that plans ahead has two batches: that of the current step, and the planned one of the
/// step after it, whose blocks are already allocated. The plan starts from the state at the end of
/// the current step, except that requests which finish with it keep their seats and blocks. It
/// consists of all decoders but these, and of the slots with `planned` tokens.
struct EngineState {
  /// `settings` must outlive the state and its copies.
  EngineState(const EngineSettings& settings, const InstanceGroup& group, bool meters_tokens);

  const EngineSettings& settings;
  KvMemory memory;
  WaitingQueue waiting;
  Decoders decoders;
  std::vector<Slot> slots;  ///< in order of entry
  std::uint32_t next_entry = 0;
  Activity activity = Activity::idle;
  Jump jump;                     ///< while stepping
  bool preempted = false;        ///< in the latest step
  std::int64_t prefill_cap = 0;  ///< in the step that is being scheduled
  bool pauses_prompts = false;   ///< the same
  std::int64_t steps_since_prompts = std::int64_t{1} << 40;  ///< steps with tokens; at first many
  bool left_none_waiting = false;     ///< in the last step in which prompts did not pause
  std::int64_t orders = 0;            ///< how often the queue was sorted by cached tokens
  bool has_prompts = false;           ///< so far in this step, beside last tokens of prompts
  bool started_prompts = false;       ///< of requests of the batch before
  bool takes_late = false;            ///< see `free_blocks`
  bool is_planned = false;            ///< the step after the current one has a plan
  std::int64_t unplanned_blocks = 0;  ///< that finishing decoders would begin in the planned step
  std::int64_t demand_blocks = 0;     ///< of the requests that wait or run, to their end
  KvLoss kv_loss = KvLoss::none;      ///< when the current step has ended
  std::vector<Leaving> leaving;       ///< at the end of the current step
  /// Preempted for the plan, before the current step, in which they emit a token, has ended. Those
  /// that do not finish with it are in the queue.
  std::vector<Slot> ousted;
  /// Withdrawn from the plan, which keeps their tokens (`aborts_before_tokens`), or finished
  /// earlier than planned (drafts). None without special rules.
  std::vector<Slot> withdrawn;
  // Only with legs:
  std::vector<Prompt> unread;       ///< of prefill legs that have ended
  std::vector<Prompt> receiving;    ///< of decode legs: their blocks are being filled
  std::vector<Prompt> ready;        ///< of decode legs: they have arrived, in this order
  std::int32_t num_arriving = 0;    ///< number of both
  std::int64_t awaited_tokens = 0;  ///< of prompts that decode legs in the queue wait for

  Counters counters;
  sim::Time waiting_since{0};  ///< time up to which `counters.waiting_time_s` is accounted
  std::vector<std::int64_t> emitted_by_group;  ///< empty unless tokens are metered

  // Empty between calls; kept to reuse their memory.
  std::vector<sim::RequestId> preempted_for_head;
  std::vector<Decoders::Member> members;
  std::vector<Finished> finished;
};

inline std::int64_t num_running(const EngineState& s) {
  return s.decoders.size() + std::ssize(s.slots);
}
inline bool is_batch_empty(const EngineState& s) { return s.decoders.empty() && s.slots.empty(); }
inline bool has_withdrawn(const EngineState& s) {
  return s.settings.has_special_rules && !s.withdrawn.empty();
}
inline bool has_ready(const EngineState& s) {
  return s.settings.has_special_rules && !s.ready.empty();
}
[[gnu::always_inline]] inline bool has_work(const EngineState& s) {
  return !is_batch_empty(s) || !s.waiting.empty() || has_withdrawn(s) || has_ready(s);
}
/// Number of waiting requests, with those that finish with the current step, where they count.
inline std::int64_t num_waiting(const EngineState& s) {
  const auto waiting = static_cast<std::int64_t>(s.waiting.size());
  if (s.ousted.empty() || !s.settings.rules.counts_finishing_victims) return waiting;
  return waiting + std::ranges::count_if(s.ousted, &Slot::is_finishing);
}

/// Whether requests that decode are kept as sums. If taking a block can forget another one with
/// the same identity, the order in which the requests of a step take blocks matters, and every step
/// is performed request by request.
inline bool keeps_sums(const EngineState& s) {
  return s.settings.keeps_sums && !s.memory.order_matters();
}
/// Whether several steps may be performed together.
inline bool may_jump(const EngineState& s) {
  // Settings with which an engine jumps let it keep sums, too.
  return s.settings.stepping == Stepping::jumps && !s.memory.order_matters();
}
/// Whether steps of the current jump have not begun.
inline bool has_steps_ahead(const EngineState& s) {
  return s.activity == Activity::stepping && s.jump.steps > s.jump.begun;
}
/// Whether, in a jump, the effects of a step are certain but not applied yet: the step ends now or,
/// if effects take place at the start, has begun.
inline bool awaits_effects(const EngineState& s, sim::Time now) {
  return s.activity == Activity::stepping && !s.jump.effects_taken &&
         (s.settings.completion == Completion::step_start || s.jump.end_of_step() == now);
}

/// Known tokens of a slot to be computed after the current step, all of whose drafts are accepted.
inline std::int64_t next_need(const Slot& slot) {
  return slot.emits() ? 1 : slot.needed_tokens() - slot.tokens;
}
/// The same as `share_of`, with drafts.
std::int64_t share_with_drafts(const EngineState& s, const Slot& slot, std::int64_t budget);

/// The tokens of a slot in the step after the current one, with this `budget`.
inline std::int64_t share_of(const EngineState& s, const Slot& slot, std::int64_t budget) {
  if (s.settings.num_drafts > 0) return share_with_drafts(s, slot, budget);
  if (slot.emits()) return slot.is_finishing() ? 0 : std::min<std::int64_t>(1, budget);
  if (s.pauses_prompts && slot.in_prompt) return 0;
  const std::int64_t need = slot.needed_tokens() - slot.tokens;
  return std::min({need, slot.is_decoding() ? need : s.prefill_cap, budget});
}

/// With these tokens of a slot computed, those that decide what can be found.
inline std::int64_t known_of(const EngineState& s, const Slot& slot, std::int64_t tokens) {
  const bool may_be_unknown = !s.settings.rules.registers_when_known && s.settings.num_drafts == 0;
  if (may_be_unknown) return tokens;
  return std::min(tokens + s.settings.tokens_behind_block, slot.known_tokens());
}

/// Of a request of a leg: its output tokens, and the time of the last one.
inline std::int32_t emitted_elsewhere(const EngineState& s, sim::RequestId id) {
  return s.settings.resumptions ? (*s.settings.resumptions)[id.index()].emitted : 0;
}
inline sim::Time last_token_elsewhere(const EngineState& s, sim::RequestId id) {
  return emitted_elsewhere(s, id) > 0 ? (*s.settings.resumptions)[id.index()].last_token
                                      : sim::kUnset;
}
/// Tokens of the prompt of a leg: with the output of other instances that it has lost.
inline std::int64_t prompt_of(const EngineState& s, sim::RequestId id) {
  return std::int64_t{s.settings.requests.input_tokens(id)} + emitted_elsewhere(s, id);
}

/// KV blocks of a request at its end. The KV of its last token is not computed.
inline std::int64_t demand_of(const EngineState& s, sim::RequestId id) {
  const workload::RequestTable& requests = s.settings.requests;
  return s.memory.blocks_for(std::int64_t{requests.input_tokens(id)} +
                             requests.target_output_tokens(id) - 1);
}
/// Steps whose tokens have been allocated but not computed.
inline std::int64_t steps_in_progress(const EngineState& s) {
  return s.activity == Activity::stepping && !s.jump.effects_taken ? 1 + s.jump.silent : 0;
}
/// Steps whose tokens have been allocated, but not computed: also the planned one.
inline std::int64_t allocated_steps(const EngineState& s) {
  return steps_in_progress(s) + (s.is_planned ? 1 : 0);
}
/// KV blocks of the decoders.
inline std::int64_t decoders_blocks(const EngineState& s) {
  return s.decoders.held_blocks(allocated_steps(s)) - s.unplanned_blocks;
}
/// Number of free KV blocks.
///
/// While the requests that wait or run fit into memory to their end (`KvMemory::may_take_late`), a
/// decoder's blocks follow from its context, and are taken from the memory when it leaves the
/// decoders: no step touches the memory for it.
inline std::int64_t free_blocks(const EngineState& s) {
  const std::int64_t late = s.takes_late ? decoders_blocks(s) - s.decoders.taken_blocks() : 0;
  return s.memory.free() - late;
}

/// Accounts the queue's length up to now; to be called before it changes.
inline void account_waiting(EngineState& s, sim::Time now) {
  if (!s.waiting.empty()) {
    s.counters.waiting_time_s +=
        static_cast<double>(s.waiting.size()) * sim::to_seconds(now - s.waiting_since);
  }
  s.waiting_since = now;
}

/// From now on the decoders' blocks are taken as they grow (`free_blocks`); the late ones are taken
/// now.
void take_late_blocks(EngineState& s);
/// The counts of the memory, with the blocks that are taken late.
KvCounts kv_counts(const EngineState& s);

/// Throws InvariantError unless free and held blocks add up to the total.
void check_memory(const EngineState& s, sim::InstanceId id);

}  // namespace spillway::instance
