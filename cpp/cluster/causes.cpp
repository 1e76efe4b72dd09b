#include "cluster/causes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "cluster/outages.h"
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

/// A stay of a request that went on elsewhere.
struct Visit {
  Stay stay;
  std::int64_t owed_tokens = 0;  ///< lost with instances before
  Time caught_up = sim::kUnset;  ///< served as far as before; unset: not here
  Progress progress;
  Progress prefill;  ///< of its prefill leg

  bool is_remote() const { return stay.prefill_instance >= 0; }
  bool has_moved() const { return sim::is_set(stay.transfer_end); }
  /// Whether it is at the instance, in its prefill leg or at all.
  bool prefills_at(std::size_t instance, Time at) const {
    const Time end = sim::is_set(stay.prefill_end) ? stay.prefill_end : stay.left;
    return is_remote() && std::cmp_equal(stay.prefill_instance, instance) && at < end;
  }
  bool is_at(std::size_t instance, Time at) const {
    return std::cmp_equal(stay.instance, instance) && (!is_remote() || has_moved()) &&
           at < stay.left;
  }
  /// What has left with the instance was in a step, or waited for one.
  bool left_engine() const { return !sim::is_set(stay.prefill_end) || has_moved(); }
};

/// The stays of completed requests that went on elsewhere.
class Visits {
 public:
  Visits(const Simulation& simulation, const RequestRecord& record) {
    if (record.stays.empty()) return;
    first_.assign(record.offered, -1);
    std::vector<std::vector<const Stay*>> of_row(record.offered);
    for (const Stay& stay : record.stays) {
      const auto id = record.requests.settled(stay.id);
      if (id && record.states.outcome[id->index()] == workload::Outcome::completed) {
        of_row.at(id->index()).push_back(&stay);
      }
    }
    for (std::size_t row = 0; row < record.offered; ++row) {
      if (of_row[row].empty()) continue;
      // Stays of earlier attempts precede them.
      const std::size_t migrations = record.states.resumptions[row].migrations;
      if (migrations > 0) add(row, std::span(of_row[row]).last(migrations + 1));
    }
    std::vector<std::size_t> first_engine;
    std::size_t engines = 0;
    for (const instance::InstanceGroup& group : simulation.instances) {
      for (std::int64_t i = 0; i < group.count; ++i) {
        first_engine.push_back(engines);
        engines += static_cast<std::size_t>(group.data_parallel_size);
      }
    }
    at_engine_.resize(engines);
    for (Visit& visit : all_) {
      const Stay& stay = visit.stay;
      const std::size_t engine = first_engine.at(static_cast<std::size_t>(stay.instance)) +
                                 static_cast<std::size_t>(stay.rank);
      if (sim::is_set(stay.enqueued)) at_engine_.at(engine).push_back(&visit);
    }
    for (auto& visits : at_engine_) {
      std::ranges::stable_sort(visits, {}, [](const Visit* visit) { return visit->stay.left; });
    }
  }

  /// Visits of a completed request, in order; empty: it stayed at one instance.
  std::span<Visit> of(RequestId id) {
    if (first_.empty() || first_[id.index()] < 0) return {};
    const auto first = static_cast<std::size_t>(first_[id.index()]);
    std::size_t end = first + 1;
    while (end < all_.size() && all_[end].stay.id == id) ++end;
    return std::span(all_).subspan(first, end - first);
  }
  /// Visits to an engine, in order of leaving.
  std::span<Visit* const> at_engine(std::size_t engine) const {
    return at_engine_.empty() ? std::span<Visit* const>() : at_engine_.at(engine);
  }

 private:
  void add(std::size_t row, std::span<const Stay* const> stays) {
    first_[row] = std::ssize(all_);
    std::int64_t owed_tokens = 0;
    for (const Stay* stay : stays) {
      Visit visit{.stay = *stay, .owed_tokens = owed_tokens};
      visit.stay.id = RequestId{row};
      if (owed_tokens == 0) visit.caught_up = stay->enqueued;
      all_.push_back(visit);
      owed_tokens = std::max(owed_tokens, stay->lost_tokens);
    }
  }

  std::vector<Visit> all_;  // by request
  std::vector<std::ptrdiff_t> first_;
  std::vector<std::vector<Visit*>> at_engine_;
};

class Attribution {
 public:
  Attribution(const Simulation& simulation, const Output& output, TimeByCause& found)
      : record_(*output.record),
        outages_(output.faults),
        visits_(simulation, record_),
        found_(found),
        sending_(sim::from_seconds(simulation.gateway.routing_latency_s) +
                 sim::from_seconds(simulation.gateway.decision_latency_s)),
        progress_(record_.offered),
        prefills_(record_.legs ? record_.offered : 0) {}

  void pass(const instance::StepLog& log, const instance::InstanceGroup& group,
            std::size_t instance, std::size_t number, EngineTimes& engine) {
    instance_ = instance;
    waits_.assign(1, {});
    planned_.clear();
    std::span<Visit* const> open = visits_.at_engine(number);
    for (const ScheduledStep& call : log) {
      while (!open.empty() && open.front()->stay.left <= call.planned) {
        leave(*open.front());
        open = open.subspan(1);
      }
      pass(call, group, engine);
    }
    for (Visit* visit : open) leave(*visit);
  }

  /// The time of a completed request outside the steps of engines. Precondition: all engines are
  /// passed.
  void add_rest(RequestId id, bool has_steps) {
    const std::span<const Visit> visits = visits_.of(id);
    add_stages(id, has_steps, visits);
    add_handoff(id, visits);
    for (std::size_t i = 0; i + 1 < visits.size();) {
      const Time left = visits[i].stay.left;
      do ++i;
      while (i + 1 < visits.size() && !sim::is_set(visits[i].caught_up));
      const Time end = sim::is_set(visits[i].caught_up) ? visits[i].caught_up : finished(id);
      of(found_.requests[id.index()], Cause::failure) += (end - left).ns;
    }
  }

 private:
  /// A request in the batch of the engine that is passed.
  struct Place {
    RequestId id;
    Progress& own;
    Time entered;  // the queue of the engine
    Time since;    // it has been in this queue, or has had a claim on the next seat
    Time left;     // the engine
    Time until;    // its steps count
    Visit* visit;  // null: it stayed at one instance
    // The prompt has come, with all that the request has lost.
    bool has_prompt = false;

    bool is_behind() const { return visit && !has_prompt && !sim::is_set(visit->caught_up); }
  };

  void pass(const ScheduledStep& call, const instance::InstanceGroup& group, EngineTimes& engine) {
    for (const RequestId attempt : call.preempted) {
      const auto place = place_of(attempt, call);
      if (!place || call.planned < place->entered) continue;
      place->own.was_preempted = true;
      place->own.most_tokens = std::max(place->own.most_tokens, place->own.tokens);
      place->own.tokens = 0;
    }
    for (const auto* joined : {&call.admitted, &call.readmitted}) {
      for (const auto& [attempt, cached] : *joined) {
        if (const auto place = place_of(attempt, call)) place->own.tokens = cached;
      }
    }
    if (!sim::is_set(call.start)) return;
    const std::int64_t span = (call.end - call.start - outage(call.start, call.end)).ns;
    const std::int64_t alone = std::min(call.alone.ns, span);
    const std::int64_t decode = std::min(call.without_prompts.ns, span);
    engine.decode += decode;
    engine.prefill += alone - decode;
    engine.lockstep += span - alone;

    prompts_ = call.prompts;
    std::ranges::sort(prompts_);
    auto scheduled = call.scheduled.begin();
    for (const RequestId attempt : call.running) {
      std::int64_t tokens = 0;
      if (scheduled != call.scheduled.end() && scheduled->first == attempt) {
        tokens = scheduled++->second;
      }
      const auto place = place_of(attempt, call);
      if (!place || call.start < place->entered || call.start >= place->left) continue;
      wait(*place, call.start);
      take_part(*place, tokens, std::ranges::binary_search(prompts_, attempt), call);
    }
    waits_.push_back(waits_.back());
    const Cause cause = refusal(call, group);
    of(waits_.back(), cause) += span;
    planned_.push_back({call.planned, call.start, call.end, cause});
  }

  /// The time of a request up to a step, or until it is lost, since its entry or its latest step.
  void wait(const Place& place, Time until) {
    CauseTimes& times = found_.requests[place.id.index()];
    Progress& own = place.own;
    const bool was_preempted = std::exchange(own.was_preempted, false);
    if (place.is_behind()) return;
    const Time since = sim::is_set(own.last_end) ? own.last_end : place.since;
    const Time lost = outage(since, until);
    of(times, Cause::failure) += lost.ns;
    std::int64_t left = (until - since - lost).ns;
    if (was_preempted) {
      of(times, Cause::preemption) += left;
      return;
    }
    // The steps from the first call that saw it waiting on.
    const auto seen = std::ranges::lower_bound(planned_, since, {}, &Call::planned);
    if (!sim::is_set(own.last_end) && seen != planned_.end()) {
      const CauseTimes& before = waits_[static_cast<std::size_t>(seen - planned_.begin())];
      for (std::size_t i = 0; i < before.size(); ++i) {
        times.at(i) += waits_.back().at(i) - before.at(i);
        left -= waits_.back().at(i) - before.at(i);
      }
      // The request may leave the queue during steps.
      for (auto call = planned_.end(); call != seen && std::prev(call)->end > until;) {
        --call;
        const Time from = std::max(call->start, until);
        const std::int64_t over = (call->end - from - outage(from, call->end)).ns;
        of(times, call->cause) -= over;
        left += over;
      }
    }
    of(times, Cause::step_under_way) += left;
  }

  void take_part(const Place& place, std::int64_t tokens, bool is_in_prompt,
                 const ScheduledStep& call) {
    CauseTimes& times = found_.requests[place.id.index()];
    Progress& own = place.own;
    const Time end = std::min(call.end, place.until);
    const bool is_again = own.tokens < own.most_tokens;
    own.tokens += tokens;
    own.last_end = end;
    if (place.is_behind()) {
      if (own.tokens >= place.visit->owed_tokens) place.visit->caught_up = end;
      return;
    }
    const Time lost = outage(call.start, end);
    of(times, Cause::failure) += lost.ns;
    const std::int64_t span = (end - call.start - lost).ns;
    if (tokens == 0) {
      of(times, Cause::token_budget) += span;
    } else if (is_in_prompt) {
      of(times, is_again ? Cause::recomputation : Cause::prefill_own) += span;
    } else {
      const std::int64_t decode = std::min(call.without_prompts.ns, span);
      const std::int64_t alone = std::min(call.alone.ns, span);
      of(times, Cause::decode) += decode;
      of(times, Cause::prefill_of_others) += alone - decode;
      of(times, Cause::lockstep) += span - alone;
    }
  }

  /// The visit ends with the instance: nothing follows in the steps that it has seen.
  void leave(Visit& visit) {
    const bool completed = &visit == &visits_.of(visit.stay.id).back();
    if (completed || !visit.left_engine()) return;
    const bool is_prefill = visit.is_remote() && !visit.has_moved();
    wait(is_prefill ? prefill_at(visit) : place_at(visit), visit.stay.left);
  }

  /// The time of a completed request before its engine's queue, and on a server without steps.
  void add_stages(RequestId id, bool has_steps, std::span<const Visit> visits) {
    const workload::RequestStates& states = record_.states;
    CauseTimes& times = found_.requests[id.index()];
    Time at = record_.requests.first_arrival(id);
    const auto until = [&](Cause cause, Time stamp) {
      if (!sim::is_set(stamp) || stamp < at) return;
      of(times, cause) += (stamp - at).ns;
      at = stamp;
    };
    until(Cause::client, record_.requests.arrival(id));
    until(Cause::admission, states.admitted[id.index()]);
    until(Cause::gateway_queue, states.dispatched[id.index()]);
    Time entered = enqueued(id);
    instance_ = static_cast<std::size_t>(states.instance[id.index()]);
    if (!visits.empty()) {
      const Stay& first = visits.front().stay;
      entered = sim::is_set(first.enqueued) ? first.enqueued : first.left;
      instance_ = static_cast<std::size_t>(first.instance);
    }
    if (const std::int32_t sent_to = prefill_instance(id, visits); sent_to >= 0) {
      instance_ = static_cast<std::size_t>(sent_to);
    }
    const Time sent = at + sending_;
    const Time lost = is_repeated(id) ? entered - sent : outage(sent, entered);
    until(Cause::ingress, entered);
    of(times, Cause::ingress) -= lost.ns;
    of(times, Cause::failure) += lost.ns;
    if (!has_steps) until(Cause::service, states.finished[id.index()]);
  }
  /// The time between the legs of a completed request.
  void add_handoff(RequestId id, std::span<const Visit> visits) {
    CauseTimes& times = found_.requests[id.index()];
    for (const Visit& visit : visits) {
      const Stay& stay = visit.stay;
      if (sim::is_set(stay.prefill_end) && sim::is_set(visit.caught_up)) {
        add_handoff(times, visit.prefill.last_end, stay.transfer_begin,
                    visit.has_moved() ? stay.transfer_end : stay.left);
      }
    }
    if (!visits.empty() || !is_remote(id)) return;
    const LegColumns& legs = *record_.legs;
    add_handoff(times, prefills_[id.index()].last_end, legs.transfer_begin[id.index()],
                legs.transfer_end[id.index()]);
  }
  static void add_handoff(CauseTimes& times, Time prefilled, Time begin, Time end) {
    const Time handed_over = sim::is_set(begin) ? begin : end;
    of(times, Cause::handoff) += (handed_over - prefilled).ns;
    of(times, Cause::transfer) += (end - handed_over).ns;
  }
  // Where its first prefill leg was sent; −1: it had none.
  std::int32_t prefill_instance(RequestId id, std::span<const Visit> visits) const {
    if (!visits.empty()) return visits.front().stay.prefill_instance;
    return is_remote(id) ? record_.legs->prefill_instance[id.index()] : -1;
  }

  // Where a completed request for which the attempt stands is at the call; none: not here.
  std::optional<Place> place_of(RequestId attempt, const ScheduledStep& call) {
    if (record_.states.outcome[attempt.index()] != workload::Outcome::completed) return {};
    const auto id = record_.requests.settled(attempt);
    if (!id) return {};
    const std::span<Visit> visits = visits_.of(*id);
    for (Visit& visit : visits) {
      if (!sim::is_set(visit.stay.enqueued) || visit.stay.enqueued > call.planned) continue;
      if (visit.prefills_at(instance_, call.planned)) return prefill_at(visit);
      if (visit.is_at(instance_, call.planned)) return place_at(visit);
    }
    if (!visits.empty()) return {};
    const bool is_prefill = is_prefill_leg(*id, call);
    const LegColumns* legs = record_.legs.get();
    return Place{
        .id = *id,
        .own = (is_prefill ? prefills_ : progress_)[id->index()],
        .entered = enqueued(*id),
        .since = is_remote(*id) && !is_prefill ? legs->transfer_end[id->index()] : enqueued(*id),
        .left = finished(*id),
        .until = is_prefill ? legs->prefill_end[id->index()] : finished(*id),
        .visit = nullptr};
  }
  static Place place_at(Visit& visit) {
    const Stay& stay = visit.stay;
    return {.id = stay.id,
            .own = visit.progress,
            .entered = stay.enqueued,
            .since = visit.is_remote() ? stay.transfer_end : stay.enqueued,
            .left = stay.left,
            .until = stay.left,
            .visit = &visit,
            .has_prompt = visit.has_moved()};
  }
  static Place prefill_at(Visit& visit) {
    const Stay& stay = visit.stay;
    const Time end = sim::is_set(stay.prefill_end) ? stay.prefill_end : stay.left;
    return {.id = stay.id,
            .own = visit.prefill,
            .entered = stay.enqueued,
            .since = stay.enqueued,
            .left = end,
            .until = end,
            .visit = &visit};
  }
  // Whether its prefill leg was sent again. Then its last try alone has other causes than failure.
  bool is_repeated(RequestId id) const {
    return is_remote(id) && record_.legs->prefill_retries[id.index()] > 0;
  }
  // Whether a decode leg followed its prefill leg.
  bool is_remote(RequestId id) const {
    const LegColumns* legs = record_.legs.get();
    return legs && id.index() < legs->size() && sim::is_set(legs->transfer_end[id.index()]);
  }
  bool is_prefill_leg(RequestId id, const ScheduledStep& call) const {
    return is_remote(id) && std::cmp_equal(record_.legs->prefill_instance[id.index()], instance_) &&
           call.planned < record_.legs->prefill_end[id.index()];
  }
  Time outage(Time since, Time until) const { return outages_.overlap(instance_, since, until); }
  Time enqueued(RequestId id) const { return record_.states.enqueued[id.index()]; }
  Time finished(RequestId id) const { return record_.states.finished[id.index()]; }

  struct Call {
    Time planned;
    Time start;
    Time end;
    Cause cause;  // why requests waited through the step
  };

  const RequestRecord& record_;
  Outages outages_;
  Visits visits_;
  TimeByCause& found_;
  Time sending_;  // from a dispatch until the request is sent to an instance
  std::vector<Progress> progress_;
  std::vector<Progress> prefills_;  // of prefill legs
  std::size_t instance_ = 0;
  // Of one engine: the waits by cause up to each of its steps, and its calls.
  std::vector<CauseTimes> waits_;
  std::vector<Call> planned_;
  std::vector<RequestId> prompts_;  // of one step, in order
};

}  // namespace

TimeByCause time_by_cause(const Simulation& simulation, const Output& output,
                          const std::vector<instance::StepLog>& logs) {
  const RequestRecord& record = *output.record;
  TimeByCause found;
  found.requests.resize(record.offered);
  found.engines.resize(logs.size());
  Attribution attribution(simulation, output, found);
  std::size_t engine = 0;
  std::size_t instance = 0;
  std::vector<bool> has_steps;
  for (const instance::InstanceGroup& group : simulation.instances) {
    for (std::int64_t i = 0; i < group.count; ++i, ++instance) {
      const std::size_t first = engine;
      for (std::int64_t rank = 0; rank < group.data_parallel_size; ++rank, ++engine) {
        attribution.pass(logs[engine], group, instance, engine, found.engines[engine]);
      }
      has_steps.push_back(std::any_of(logs.begin() + static_cast<std::ptrdiff_t>(first),
                                      logs.begin() + static_cast<std::ptrdiff_t>(engine),
                                      [](const auto& log) { return !log.empty(); }));
    }
  }
  for (std::size_t row = 0; row < record.offered; ++row) {
    if (record.states.outcome[row] != workload::Outcome::completed) continue;
    const auto where = static_cast<std::size_t>(record.states.instance[row]);
    attribution.add_rest(RequestId{row}, has_steps[where]);
  }
  return found;
}

}  // namespace spillway::cluster
