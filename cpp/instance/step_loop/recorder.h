#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "instance/instance.h"
#include "instance/step_loop/decoders.h"
#include "instance/step_loop/state.h"
#include "instance/step_loop/step_log.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/phase.h"
#include "sim/time.h"
#include "workload/gap_log.h"
#include "workload/outcome.h"
#include "workload/request_states.h"

namespace spillway::instance {

/// Requests whose permits are to be released. The memory stays, so that `add` is a store.
class Permits {
 public:
  [[gnu::always_inline]] void add(sim::RequestId id) {
    if (size_ == requests_.size()) grow();
    requests_[size_++] = id;
  }
  bool empty() const { return size_ == 0; }
  std::span<const sim::RequestId> requests() const { return {requests_.data(), size_}; }
  void clear() { size_ = 0; }

 private:
  [[gnu::noinline]] void grow() { requests_.resize(2 * size_ + 8); }

  std::vector<sim::RequestId> requests_;
  std::size_t size_ = 0;
};

/// Records the events of an engine's requests: timestamps, gaps between tokens and reported
/// latencies in the request states, notifications to the listener; sets the engine's alarm and
/// posts the events that release permits. In a forecast it only records the first token of one
/// request.
class Recorder {
 public:
  Recorder(std::uint32_t engine, const EngineSettings& settings, const Environment& environment)
      : settings_(settings),
        engine_(engine),
        states_(&environment.states),
        events_(&environment.events),
        alarms_(environment.lockstep ? nullptr : &environment.events),
        listener_(&environment.listener),
        legs_(environment.legs),
        log_(environment.step_logs ? &environment.step_logs->at(engine) : nullptr),
        has_few_groups_(workload::TokenGaps::are_few(settings.requests.num_groups())),
        notifies_first_tokens_(environment.notifies_first_tokens) {}
  /// The recorder of a forecast.
  Recorder(const EngineSettings& settings, sim::RequestId watched)
      : settings_(settings), watched_(watched) {}

  /// First token of the watched request; kUnset: none yet.
  sim::Time watched_first_token() const { return watched_first_token_; }

  /// The last step of the current jump ends at `at`.
  void jump_ends(sim::Time at) {
    if (alarms_) alarms_->set_alarm(engine_, at);
  }
  void entered(sim::RequestId id, sim::Time now) {
    if (!states_) return;
    states_->enqueued[id.index()] = now;
    states_->outcome[id.index()] = workload::Outcome::running;
  }
  /// `returned`: the request was preempted before.
  void scheduled(sim::RequestId id, sim::Time now, bool returned) {
    if (states_ && (settings_.reports || !returned)) states_->scheduled[id.index()] = now;
  }
  void preempted(sim::RequestId id) {
    if (states_) ++states_->preemptions[id.index()];
    if (log_) next_logged_.preempted.push_back(id);
  }
  void admitted(sim::RequestId id, std::int64_t cached_tokens, bool returned) {
    if (states_ && states_->resumes) count_recomputed(id, cached_tokens);
    if (states_ && states_->keeps_cached && !returned) {
      states_->cached_tokens[id.index()] = static_cast<std::int32_t>(cached_tokens);
    }
    log_admitted(id, cached_tokens, returned);
  }
  /// A step, or the next one, has been scheduled.
  void step_scheduled(const EngineState& s, sim::Time now) {
    if (log_) log_scheduled(s, now);
  }
  /// The step that was last scheduled with tokens begins.
  void step_begins(const EngineState& s) {
    if (log_) log_begun(s);
  }

  /// The step under way ends at another time, because its instance stood still or has failed.
  void step_ends(sim::Time at) {
    if (log_) log_->at(logged_).end = at;
  }

  /// The slot's new token is emitted at the end of the step; `last_token` is the time of the
  /// previous one.
  [[gnu::always_inline]] void token(const Slot& slot, const Jump& step) {
    const sim::Time at = step.end_of_step();
    if (!sim::is_set(slot.last_token)) first_token(slot.id, at);
    if (!states_ || slot.emitted == 1) return;
    const sim::Time gap = settings_.reports ? reported_gap(step) : at - slot.last_token;
    if (settings_.reports) states_->reported_decode[slot.id.index()] += gap;
    if (settings_.requests.is_counted(slot.id)) {
      states_->token_gaps.add(settings_.requests.group(slot.id), gap, 1);
    }
  }
  /// Each decoder gets a token in each of `steps` steps with the duration of `step`. The steps of a
  /// jump follow each other without gaps, so the gap before each token is its step's duration.
  void decoder_tokens(const Decoders& decoders, const Jump& step, std::int64_t steps) {
    if (!states_) return;
    const sim::Time gap = reported_gap(step);
    has_few_groups_ ? decoders.record_gaps(states_->token_gaps, gap, steps)
                    : log_gap(decoders, gap, steps);
    decode_clock_ += sim::Time{steps * gap.ns};
  }
  /// The request is a slot of a step that ends at `end_of_step`, with or without tokens.
  void seen_in_step(const Slot& slot, sim::Time end_of_step) {
    if (!settings_.reports || !states_ || slot.emitted != 1) return;
    states_->reported_ttft[slot.id.index()] =
        end_of_step + settings_.reported_overhead - settings_.requests.arrival(slot.id);
  }
  /// Position of the request's first gap in the log.
  std::int64_t joined_decoders(sim::RequestId id) {
    report_decode(id, sim::Time{-decode_clock_.ns});
    return gap_log_.end();
  }
  void left_decoders(const Decoders::Member& member) {
    report_decode(member.id, decode_clock_);
    if (has_few_groups_ || !states_ || !member.is_counted) return;
    gap_log_.close_section(member.gaps_begin, member.group);
  }

  [[gnu::always_inline]] void completed(sim::RequestId id, sim::Time at) {
    if (!states_) return;
    emitted(id, settings_.requests.target_output_tokens(id));
    states_->finished[id.index()] = at;
    if (log_) log_->at(logged_).finished.push_back(id);
    left(id, workload::Outcome::completed, at);
  }
  // With legs only:
  void prefill_ended(sim::RequestId id) {
    states_->outcome[id.index()] = workload::Outcome::in_transit;
    legs_->prefill_ended(id);
  }
  void blocks_taken(sim::RequestId id, std::int64_t missing) { legs_->blocks_taken(id, missing); }
  /// `held_tokens`: of its prompt, which has arrived.
  void seated(sim::RequestId id, std::int64_t held_tokens) {
    log_admitted(id, held_tokens, false);
    legs_->seated(id);
  }
  void wasted(sim::RequestId id, std::int64_t tokens) {
    if (legs_) legs_->wasted(id, tokens);
  }
  void arrived(sim::RequestId id) { states_->outcome[id.index()] = workload::Outcome::running; }

  /// `tokens`: its output tokens.
  void withdrawn(const Leaving& leaving, std::int32_t tokens, sim::Time at) {
    if (!states_) return;
    emitted(leaving.id, tokens);
    left(leaving.id, leaving.outcome, at);
  }
  /// The first token here of a request that has emitted some in another instance.
  void resumed(sim::RequestId id, sim::Time at) {
    if (!states_) return;
    states_->resumptions[id.index()].first_token = at;
    if (notifies_first_tokens_) listener_->first_token(id);
  }
  /// What the request would take along to another instance, with these tokens in memory here.
  void breaks(sim::RequestId id, sim::Time last_token, std::int64_t tokens) {
    if (!states_->resumes) return;
    workload::Resumption& resumption = states_->resumptions[id.index()];
    resumption.last_token = last_token;
    resumption.lost_tokens = std::max(resumption.lost_tokens, tokens);
  }
  /// The request fails with its engine, or its leg is sent again. Returns the time since it
  /// entered.
  sim::Time lost(sim::RequestId id, std::int32_t tokens, sim::Time at) {
    const sim::Time entered = states_->enqueued[id.index()];
    if (legs_ && legs_->tries_again(id)) return at - entered;
    states_->reason[id.index()] = workload::kInstanceLost;
    withdrawn({id, workload::Outcome::failed}, tokens, at);
    return at - entered;
  }
  /// The engine fails with what it holds of a request that is neither in its queue, to be computed,
  /// nor in its batch. Returns the time since the request first entered an engine.
  sim::Time lost_leg(sim::RequestId id, Leg leg, sim::Time at) {
    const sim::Time entered = states_->enqueued[id.index()];
    legs_->lost(id, leg);
    return sim::is_set(entered) ? at - entered : sim::Time{0};
  }
  // In a run only:
  /// The run has ended.
  void close() {
    if (!has_few_groups_) states_->token_gaps.keep(gap_log_);
  }
  /// Adds requests that leave to `permits` instead of posting the release of their permits;
  /// null: posts it.
  void withhold_permits(Permits* permits) { withheld_ = permits; }
  void post_permit(sim::RequestId id, sim::Time at) {
    events_->push({at, sim::Phase::permit_release, engine_, id.value});
  }
  void refused(sim::RequestId id, sim::Time now) {
    states_->reason[id.index()] = {workload::Stage::ingress, 0};
    left(id, workload::Outcome::rejected, now);
  }
  /// `tokens`: output tokens of the request when it leaves, or when the run ends.
  void emitted(sim::RequestId id, std::int32_t tokens) { states_->emitted[id.index()] = tokens; }

 private:
  void log_admitted(sim::RequestId id, std::int64_t cached_tokens, bool returned) {
    if (!log_) return;
    auto& list = returned ? next_logged_.readmitted : next_logged_.admitted;
    list.emplace_back(id, cached_tokens);
  }
  // Of what was lost with other instances, what is not cached here.
  void count_recomputed(sim::RequestId id, std::int64_t cached_tokens) {
    workload::Resumption& resumption = states_->resumptions[id.index()];
    const std::int64_t lost = std::exchange(resumption.lost_tokens, 0);
    resumption.recomputed_tokens += std::max<std::int64_t>(0, lost - cached_tokens);
  }
  [[gnu::noinline]] void log_scheduled(const EngineState& s, sim::Time now) {
    ScheduledStep& call = next_logged_;
    call.planned = now;
    call.free_blocks = free_blocks(s);
    call.waiting = num_waiting(s);
    for (const Slot& slot : s.slots) {
      call.running.push_back(slot.id);
      if (slot.planned > 0) call.scheduled.emplace_back(slot.id, slot.planned);
      if (slot.planned_drafts > 0) call.drafts.emplace_back(slot.id, slot.planned_drafts);
    }
    if (!call.scheduled.empty() || !call.preempted.empty()) log_->push_back(call);
    call = {};
  }
  void log_begun(const EngineState& s);
  [[gnu::noinline]] void log_gap(const Decoders& decoders, sim::Time gap, std::int64_t steps) {
    if (gap_log_.is_full()) {
      states_->token_gaps.count_sections(gap_log_, decoders.gaps_begin());
    }
    gap_log_.append(gap, steps);
  }
  sim::Time reported_gap(const Jump& step) const {
    return settings_.reports ? step.duration + settings_.reported_overhead : step.duration;
  }
  void report_decode(sim::RequestId id, sim::Time span) {
    if (settings_.reports && states_) states_->reported_decode[id.index()] += span;
  }
  // If effects precede the end of their step, the notification waits for it.
  void first_token(sim::RequestId id, sim::Time at) {
    if (!states_) {
      if (id == watched_) watched_first_token_ = at;
      return;
    }
    states_->first_token[id.index()] = at;
    if (!notifies_first_tokens_) return;
    if (settings_.completion == Completion::step_end) {
      listener_->first_token(id);
    } else {
      events_->push({at, sim::Phase::first_token, engine_, id.value});
    }
  }
  [[gnu::always_inline]] void left(sim::RequestId id, workload::Outcome outcome, sim::Time at) {
    states_->outcome[id.index()] = outcome;
    listener_->finished(id);
    if (withheld_) return withheld_->add(id);
    post_permit(id, at);
  }

  const EngineSettings& settings_;
  std::uint32_t engine_ = 0;
  workload::RequestStates* states_ = nullptr;  // null in a forecast, like the next three
  sim::EventQueue* events_ = nullptr;
  sim::EventQueue* alarms_ = nullptr;  // null also if the engine steps with others
  workload::RequestListener* listener_ = nullptr;
  LegListener* legs_ = nullptr;  // null also without legs
  StepLog* log_ = nullptr;
  bool has_few_groups_ = false;
  bool notifies_first_tokens_ = false;
  Permits* withheld_ = nullptr;
  // A clock that advances by the reported gaps of the decoders: the sum of a request's gaps is the
  // difference between its readings when the request joins the decoders and when it leaves them.
  sim::Time decode_clock_{0};
  ScheduledStep next_logged_;  // of the call under way
  std::size_t logged_ = 0;     // position of the step under way in the log
  workload::GapLog gap_log_;   // empty if there are few groups
  sim::RequestId watched_;
  sim::Time watched_first_token_ = sim::kUnset;
};

}  // namespace spillway::instance
