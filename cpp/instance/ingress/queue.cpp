#include "instance/ingress/queue.h"

#include <algorithm>
#include <utility>

namespace spillway::instance {

using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

namespace {

Environment with_listener(workload::RequestListener& listener, const Environment& outside,
                          const IngressRules& rules) {
  return {.requests = outside.requests,
          .states = outside.states,
          .events = outside.events,
          .listener = listener,
          .seed = outside.seed,
          .scrapes = outside.scrapes,
          .quantum_ns = outside.quantum_ns,
          .reports_latencies = outside.reports_latencies,
          .notifies_first_tokens =
              outside.notifies_first_tokens || rules.most_awaiting_response < IngressRules::kAny,
          .meters_tokens = outside.meters_tokens,
          .reference = outside.reference,
          .step_logs = outside.step_logs,
          .may_fail = outside.may_fail};
}

}  // namespace

IngressQueue::IngressQueue(const IngressRules& rules, std::size_t first_reason, sim::InstanceId id,
                           std::uint32_t engine, const Environment& environment)
    : rules_(rules),
      first_reason_(first_reason),
      id_(id),
      engine_(engine),
      states_(environment.states),
      events_(environment.events),
      listener_(environment.listener),
      notifies_first_tokens_(environment.notifies_first_tokens),
      inner_environment_(with_listener(*this, environment, rules)) {}

std::optional<std::uint8_t> IngressQueue::reason_to_refuse(std::int64_t more_requests,
                                                           std::int64_t more_tokens, Time now) {
  if (rules_.most_engine_requests < IngressRules::kAny) {
    const signals::Occupancy here = inner().occupancy();
    const std::int64_t counted = here.waiting + (rules_.counts_running ? here.running : 0);
    if (counted + more_requests >= rules_.most_engine_requests) return rules_.when_full;
  }
  if (rules_.most_engine_tokens < IngressRules::kAny &&
      inner().read(now).prefill_tokens + more_tokens >= rules_.most_engine_tokens) {
    return rules_.when_tokens;
  }
  return std::nullopt;
}

void IngressQueue::enqueue(RequestId id, std::size_t rank, Time now) {
  admit_waiting(now);
  if (const auto reason = reason_to_refuse(0, 0, now)) return refuse(id, *reason, now);
  if (waiting_.empty() && may_enter()) {
    ++counts_.entered_at_once;
    return enter(id, rank, now);
  }
  if (std::ssize(waiting_) >= rules_.queue_size) return refuse(id, rules_.when_full, now);
  const bool waits_for_ever = rules_.longest_wait == sim::kForever;
  waiting_.push_back({id, rank, waits_for_ever ? sim::kForever : now + rules_.longest_wait});
  counts_.queued = std::ssize(waiting_);
  counts_.most_queued = std::max(counts_.most_queued, counts_.queued);
  states_.outcome[id.index()] = Outcome::running;
  watch_deadlines();
}

void IngressQueue::cancel(RequestId id, std::size_t rank, Outcome outcome, Time now) {
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(),
                                    [id](const Waiting& request) { return request.id == id; });
  if (waiting == waiting_.end()) return inner().cancel(id, rank, outcome, now);
  waiting_.erase(waiting);
  counts_.queued = std::ssize(waiting_);
  states_.outcome[id.index()] = outcome;
  listener_.finished(id);
  events_.push({now, Phase::permit_release, engine_, id.value});
}

void IngressQueue::enter(RequestId id, std::size_t rank, Time now) {
  ++counts_.unfinished;
  ++counts_.awaiting_response;
  counts_.most_unfinished = std::max(counts_.most_unfinished, counts_.unfinished);
  inner().enqueue(id, rank, now);
}

void IngressQueue::admit_waiting(Time now) {
  wake_due_ = sim::kForever;
  if (is_suspended_) return;
  refuse_overdue(now);
  while (!waiting_.empty() && may_enter()) {
    const Waiting request = newest_next_ ? waiting_.back() : waiting_.front();
    newest_next_ ? waiting_.pop_back() : waiting_.pop_front();
    newest_next_ = false;
    counts_.queued = std::ssize(waiting_);
    ++counts_.entered_from_queue;
    enter(request.id, request.rank, now);
  }
}

void IngressQueue::expire(Time now) {
  expiry_due_ = sim::kForever;
  if (is_suspended_) return;
  refuse_overdue(now);
  watch_deadlines();
}

// Requests in the engine fail first, then those that wait here, in order of arrival.
void IngressQueue::crash(Time now) {
  is_suspended_ = true;  // none enters the place of one that fails
  inner().crash(now);
  is_suspended_ = false;
  newest_next_ = false;
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    states_.outcome[waiting.id.index()] = Outcome::failed;
    states_.reason[waiting.id.index()] = workload::kInstanceLost;
    listener_.finished(waiting.id);
    events_.push({now, Phase::permit_release, engine_, waiting.id.value});
  }
  counts_.queued = 0;
}

void IngressQueue::suspend(Time now) {
  is_suspended_ = true;
  inner().suspend(now);
}

void IngressQueue::resume(Time now) {
  is_suspended_ = false;
  inner().resume(now);
  admit_waiting(now);
  watch_deadlines();
}

void IngressQueue::refuse_overdue(Time now) {
  while (!waiting_.empty() && waiting_.front().deadline <= now) {
    const RequestId id = waiting_.front().id;
    waiting_.pop_front();
    counts_.queued = std::ssize(waiting_);
    newest_next_ = rules_.newest_after_expiry;
    refuse(id, rules_.when_expired, now);
  }
}

void IngressQueue::refuse(RequestId id, std::uint8_t reason, Time now) {
  ++counts_.refused;
  states_.outcome[id.index()] = Outcome::rejected;
  states_.reason[id.index()] = {workload::Stage::ingress,
                                static_cast<std::uint8_t>(first_reason_ + reason)};
  listener_.finished(id);
  events_.push({now, Phase::permit_release, engine_, id.value});
}

void IngressQueue::first_token(RequestId id) {
  --counts_.awaiting_response;
  wake(states_.first_token_here(id));
  if (notifies_first_tokens_) listener_.first_token(id);
}

void IngressQueue::finished(RequestId id) {
  const std::size_t row = id.index();
  --counts_.unfinished;
  // The first token has been counted only if first tokens are notified.
  const bool had_response =
      inner_environment_.notifies_first_tokens && sim::is_set(states_.first_token_here(id));
  if (!had_response) --counts_.awaiting_response;
  // After a refusal by the engine, the loop that admitted the request continues by itself.
  if (states_.outcome[row] == Outcome::completed) wake(states_.finished[row]);
  listener_.finished(id);
}

void IngressQueue::wake(Time at) {
  if (waiting_.empty() || at >= wake_due_) return;
  wake_due_ = at;
  events_.push({at, Phase::ingress, id_.value, IngressSubject::place_became_free()});
}

void IngressQueue::watch_deadlines() {
  if (waiting_.empty() || waiting_.front().deadline >= expiry_due_) return;
  expiry_due_ = waiting_.front().deadline;
  events_.push({expiry_due_, Phase::instance_expiry, id_.value, id_.value});
}

void IngressQueue::close(Time end) {
  inner().close(end);
  counters_ = inner().counters();
  counters_.entered += counts_.queued;
  counters_.refused += counts_.refused;
}

}  // namespace spillway::instance
