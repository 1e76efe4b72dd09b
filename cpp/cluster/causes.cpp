#include "cluster/causes.h"

#include <algorithm>
#include <numeric>

#include "instance/group.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::cluster {

namespace {

using instance::ScheduledStep;
using sim::RequestId;
using sim::Time;

std::int64_t& of(CauseTimes& times, Cause cause) {
  return times.at(static_cast<std::size_t>(cause));
}

/// Why those that still wait after a call of the scheduler were refused.
Cause refusal(const ScheduledStep& call, const instance::InstanceGroup& group) {
  std::int64_t tokens = 0;
  for (const auto& [id, own] : call.scheduled) tokens += own;
  if (tokens >= group.max_num_batched_tokens) return Cause::token_budget;
  if (!call.preempted.empty()) return Cause::kv_memory;
  const auto running = std::ssize(call.running);
  const std::int64_t seats = group.max_num_active_seqs
                                 ? std::min(*group.max_num_active_seqs, group.max_num_seqs)
                                 : group.max_num_seqs;
  return running >= seats ? Cause::seats : Cause::kv_memory;
}

/// What is known of a request while its engine's steps are passed.
struct Progress {
  Time last_end = sim::kUnset;   ///< of its latest step in the batch
  bool was_preempted = false;    ///< since then
  std::int64_t tokens = 0;       ///< computed since it joined the batch
  std::int64_t most_tokens = 0;  ///< before it was preempted
};

class Attribution {
 public:
  Attribution(const RequestRecord& record, TimeByCause& found)
      : record_(record),
        found_(found),
        progress_(record.offered),
        prefills_(record.legs ? record.offered : 0) {}

  void pass(const instance::StepLog& log, const instance::InstanceGroup& group,
            std::size_t instance, EngineTimes& engine) {
    instance_ = static_cast<std::int32_t>(instance);
    waits_.assign(1, {});
    planned_.clear();
    for (const ScheduledStep& call : log) pass(call, group, engine);
  }
  /// The time between the legs of a completed request. Precondition: all engines are passed.
  void add_handoff(RequestId id) {
    if (!is_remote(id)) return;
    CauseTimes& times = found_.requests[id.index()];
    const LegColumns& legs = *record_.legs;
    const Time begun = legs.transfer_begin[id.index()];
    of(times, Cause::handoff) += (begun - prefills_[id.index()].last_end).ns;
    of(times, Cause::transfer) += (legs.transfer_end[id.index()] - begun).ns;
  }

 private:
  void pass(const ScheduledStep& call, const instance::InstanceGroup& group, EngineTimes& engine) {
    for (const RequestId id : call.preempted) {
      if (!counts(id) || call.planned < enqueued(id)) continue;
      Progress& own = progress(id, call);
      own.was_preempted = true;
      own.most_tokens = std::max(own.most_tokens, own.tokens);
      own.tokens = 0;
    }
    for (const auto* joined : {&call.admitted, &call.readmitted}) {
      for (const auto& [id, cached] : *joined) {
        if (counts(id)) progress(id, call).tokens = cached;
      }
    }
    if (!sim::is_set(call.start)) return;
    const std::int64_t span = (call.end - call.start).ns;
    engine.decode += call.without_prompts.ns;
    engine.prefill += (call.alone - call.without_prompts).ns;
    engine.lockstep += span - call.alone.ns;

    prompts_ = call.prompts;
    std::ranges::sort(prompts_);
    auto scheduled = call.scheduled.begin();
    for (const RequestId id : call.running) {
      std::int64_t tokens = 0;
      if (scheduled != call.scheduled.end() && scheduled->first == id) tokens = scheduled++->second;
      if (!counts(id) || call.start < enqueued(id) || call.start >= finished(id)) continue;
      begin(id, call);
      take_part(id, tokens, call);
    }
    waits_.push_back(waits_.back());
    of(waits_.back(), refusal(call, group)) += span;
    planned_.push_back({call.planned, call.start});
  }

  /// What precedes a step of a request, since its entry or its latest step.
  void begin(RequestId id, const ScheduledStep& call) {
    CauseTimes& times = found_.requests[id.index()];
    Progress& own = progress(id, call);
    const Time since = sim::is_set(own.last_end) ? own.last_end : begun(id, call);
    std::int64_t left = (call.start - since).ns;
    if (own.was_preempted) {
      of(times, Cause::preemption) += left;
    } else {
      // The steps from the first call that saw it waiting on.
      const auto seen = std::ranges::lower_bound(planned_, since, {}, &Call::planned);
      if (!sim::is_set(own.last_end) && seen != planned_.end()) {
        const CauseTimes& before = waits_[static_cast<std::size_t>(seen - planned_.begin())];
        for (std::size_t i = 0; i < before.size(); ++i) {
          times.at(i) += waits_.back().at(i) - before.at(i);
          left -= waits_.back().at(i) - before.at(i);
        }
      }
      of(times, Cause::step_under_way) += left;
    }
    own.was_preempted = false;
  }

  void take_part(RequestId id, std::int64_t tokens, const ScheduledStep& call) {
    CauseTimes& times = found_.requests[id.index()];
    Progress& own = progress(id, call);
    const Time end = std::min(
        call.end, is_prefill_leg(id, call) ? record_.legs->prefill_end[id.index()] : finished(id));
    const std::int64_t span = (end - call.start).ns;
    if (tokens == 0) {
      of(times, Cause::token_budget) += span;
    } else if (std::ranges::binary_search(prompts_, id)) {
      const bool is_again = own.tokens < own.most_tokens;
      of(times, is_again ? Cause::recomputation : Cause::prefill_own) += span;
    } else {
      const std::int64_t decode = std::min(call.without_prompts.ns, span);
      const std::int64_t alone = std::min(call.alone.ns, span);
      of(times, Cause::decode) += decode;
      of(times, Cause::prefill_of_others) += alone - decode;
      of(times, Cause::lockstep) += span - alone;
    }
    own.tokens += tokens;
    own.last_end = end;
  }

  bool counts(RequestId id) const {
    return record_.states.outcome[id.index()] == workload::Outcome::completed;
  }
  bool is_remote(RequestId id) const {
    const LegColumns* legs = record_.legs.get();
    return legs && id.index() < legs->size() && legs->prefill_instance[id.index()] >= 0;
  }
  bool is_prefill_leg(RequestId id, const ScheduledStep& call) const {
    return is_remote(id) && record_.legs->prefill_instance[id.index()] == instance_ &&
           call.planned < record_.legs->prefill_end[id.index()];
  }
  Progress& progress(RequestId id, const ScheduledStep& call) {
    return (is_prefill_leg(id, call) ? prefills_ : progress_)[id.index()];
  }
  // When the leg joined the queue of this engine, or got a claim on its next seat.
  Time begun(RequestId id, const ScheduledStep& call) const {
    const bool is_decode_leg = is_remote(id) && !is_prefill_leg(id, call);
    return is_decode_leg ? record_.legs->transfer_end[id.index()] : enqueued(id);
  }
  Time enqueued(RequestId id) const { return record_.states.enqueued[id.index()]; }
  Time finished(RequestId id) const { return record_.states.finished[id.index()]; }

  struct Call {
    Time planned;
    Time start;
  };

  const RequestRecord& record_;
  TimeByCause& found_;
  std::vector<Progress> progress_;
  std::vector<Progress> prefills_;  // of prefill legs
  std::int32_t instance_ = 0;
  // Of one engine: the waits by cause up to each of its steps, and its calls.
  std::vector<CauseTimes> waits_;
  std::vector<Call> planned_;
  std::vector<RequestId> prompts_;  // of one step, in order
};

/// The time of a completed request before its engine's queue, and on a server without steps.
void add_stages(const RequestRecord& record, RequestId id, bool has_steps, CauseTimes& times) {
  const workload::RequestStates& states = record.states;
  Time at = record.requests.first_arrival(id);
  const auto until = [&](Cause cause, Time stamp) {
    if (!sim::is_set(stamp) || stamp < at) return;
    of(times, cause) += (stamp - at).ns;
    at = stamp;
  };
  until(Cause::client, record.requests.arrival(id));
  until(Cause::admission, states.admitted[id.index()]);
  until(Cause::gateway_queue, states.dispatched[id.index()]);
  until(Cause::ingress, states.enqueued[id.index()]);
  if (!has_steps) until(Cause::service, states.finished[id.index()]);
}

}  // namespace

TimeByCause time_by_cause(const Simulation& simulation, const RequestRecord& record,
                          const std::vector<instance::StepLog>& logs) {
  TimeByCause found;
  found.requests.resize(record.offered);
  found.engines.resize(logs.size());
  Attribution attribution(record, found);
  std::size_t engine = 0;
  std::size_t instance = 0;
  std::vector<bool> has_steps;
  for (const instance::InstanceGroup& group : simulation.instances) {
    for (std::int64_t i = 0; i < group.count; ++i, ++instance) {
      const std::size_t first = engine;
      for (std::int64_t rank = 0; rank < group.data_parallel_size; ++rank, ++engine) {
        attribution.pass(logs[engine], group, instance, found.engines[engine]);
      }
      has_steps.push_back(std::any_of(logs.begin() + static_cast<std::ptrdiff_t>(first),
                                      logs.begin() + static_cast<std::ptrdiff_t>(engine),
                                      [](const auto& log) { return !log.empty(); }));
    }
  }
  for (std::size_t row = 0; row < record.offered; ++row) {
    if (record.states.outcome[row] != workload::Outcome::completed) continue;
    const auto where = static_cast<std::size_t>(record.states.instance[row]);
    add_stages(record, RequestId{row}, has_steps[where], found.requests[row]);
    attribution.add_handoff(RequestId{row});
  }
  return found;
}

}  // namespace spillway::cluster
