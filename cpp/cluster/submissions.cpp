#include "cluster/submissions.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>

#include "metrics/latencies.h"
#include "sim/mix.h"

namespace spillway::cluster {

using sim::RequestId;
using sim::Time;

namespace {

// Contents of requests from outside differ from those of the workload.
workload::Segment segment_of(const workload::PromptSegment& part) {
  constexpr std::uint64_t kOutside = 0x6F757473'69646521;
  return {sim::mix(kOutside ^ static_cast<std::uint64_t>(part.content)),
          static_cast<std::uint32_t>(part.tokens)};
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

template <class Named>
std::size_t position(const std::vector<Named>& all, const std::string& name) {
  return static_cast<std::size_t>(std::ranges::find(all, name, &Named::name) - all.begin());
}

}  // namespace

bool Submissions::are_known(const workload::Submission& request) const {
  const workload::RequestTable& requests = record_.requests;
  return position(requests.tenants, request.tenant) < requests.tenants.size() &&
         position(requests.slo_classes, request.slo_class) < requests.slo_classes.size() &&
         std::ranges::find(requests.models(), request.model) != requests.models().end();
}

std::size_t Submissions::add(const workload::Submission& request, Time arrival) {
  Submitted& added = all_.emplace_back();
  added.request = request;
  added.arrival = arrival;
  added.tenant = position(record_.requests.tenants, request.tenant);
  added.slo_class = position(record_.requests.slo_classes, request.slo_class);
  std::ranges::transform(request.segments, std::back_inserter(added.segments), segment_of);
  pending_.push_back(size_++);
  return pending_.back();
}

std::optional<std::size_t> Submissions::number_of(RequestId id) const {
  return id.index() < number_of_.size() ? number_of_[id.index()] : std::nullopt;
}

void Submissions::note_arrival(RequestId id, std::optional<std::size_t> number) {
  number_of_.resize(std::max(number_of_.size(), id.index() + 1));
  number_of_[id.index()] = number;
  if (number) at(*number).handle = record_.requests.handle(id);
}

void Submissions::awaits_retry(RequestId id, bool awaits) {
  const auto number = number_of(id);
  if (!number) return;
  Submitted& submitted = at(*number);
  submitted.awaits_retry = awaits;
  submitted.reported_dispatch = submitted.reported_token = sim::kUnset;
  submitted.reported_prompt = submitted.prompt_computed = sim::kUnset;
}

void Submissions::continues_as(RequestId held, RequestId id) {
  if (!number_of_.empty()) number_of_.resize(std::max(number_of_.size(), id.index() + 1));
  const auto number = number_of(held);
  if (!number) return;
  number_of_[held.index()].reset();
  number_of_[id.index()] = number;
  at(*number).handle = record_.requests.handle(id);
  awaits_retry(id, false);
}

std::optional<std::int64_t> Submissions::instance_of(RequestId id) const {
  const auto number = number_of(id);
  return number ? at(*number).request.instance : std::nullopt;
}

bool Submissions::is_prefill_only(RequestId id) const {
  const auto number = number_of(id);
  return number && at(*number).request.prefill_only;
}

bool Submissions::is_planned(RequestId id) const {
  const auto number = number_of(id);
  return number && is_planned(*number);
}

const workload::HandOff* Submissions::handed_off(RequestId id) const {
  const auto number = number_of(id);
  if (!number) return nullptr;
  const Submitted& known = at(*number);
  return known.is_handed_off && known.planned ? &*known.planned : nullptr;
}

void Submissions::prompt_computed(RequestId id, Time now) {
  if (const auto number = number_of(id)) at(*number).prompt_computed = now;
}

std::optional<RequestId> Submissions::hand_off(std::size_t number) {
  at(number).is_handed_off = true;
  return find(number);
}

bool Submissions::was_withdrawn(RequestId id) const {
  const auto number = number_of(id);
  return number && at(*number).is_withdrawn;
}

std::optional<RequestId> Submissions::find(std::size_t number) const {
  const Submitted& submitted = at(number);
  if (!submitted.handle || submitted.final) return std::nullopt;
  return submitted.handle->id;
}

void Submissions::keep_final(RequestId id, Time now) {
  const auto number = number_of(id);
  if (!number) return;
  SubmissionStatus last = status(*number, sim::kForever);
  last.has_ended = true;
  last.ended = now;
  at(*number).final = last;
  number_of_[id.index()].reset();
}

std::vector<SubmissionEvent> Submissions::take_events(Time now, bool forgets) {
  using Kind = SubmissionEvent::Kind;
  std::vector<SubmissionEvent> events;
  for (const std::size_t number : pending_) {
    Submitted& submitted = at(number);
    const SubmissionStatus found = status(number, now);
    const auto add = [&](Kind kind, Time since, Time& reported) {
      if (!sim::is_set(since) || since == reported || since > now) return;
      reported = since;
      events.push_back({kind, number, since, found});
    };
    if (!submitted.awaits_retry) {
      add(Kind::dispatched, found.dispatched, submitted.reported_dispatch);
      add(Kind::prompt_computed, submitted.prompt_computed, submitted.reported_prompt);
      add(Kind::first_token, found.first_token, submitted.reported_token);
    }
    if (!found.has_ended) continue;
    events.push_back({Kind::ended, number, found.ended, found});
    submitted.is_reported = true;
  }
  std::erase_if(pending_, [&](std::size_t number) { return at(number).is_reported; });
  while (forgets && !all_.empty() && all_.front().is_reported) {
    all_.pop_front();
    ++num_forgotten_;
  }
  std::ranges::sort(events, {}, [](const SubmissionEvent& event) {
    return std::tuple(event.at, event.number, event.kind);
  });
  return events;
}

SubmissionStatus Submissions::status(std::size_t number, Time now) const {
  const Submitted& submitted = at(number);
  if (submitted.final) return *submitted.final;
  SubmissionStatus found{
      .arrival_s = kNone, .ttft_s = kNone, .tpot_s = kNone, .e2e_s = kNone, .queue_s = kNone};
  if (!submitted.handle) return found;
  const RequestId id = submitted.handle->id;
  const workload::RequestTable& requests = record_.requests;
  const workload::RequestStates& states = record_.states;
  const std::size_t i = id.index();
  const metrics::Latencies latencies(requests, states, record_.accounting);
  found.state = submitted.awaits_retry
                    ? "awaiting_retry"
                    : workload::kOutcomeNames[static_cast<std::size_t>(states.outcome[i])];
  found.reason = states.reason[i];
  found.row = submitted.handle->row;
  found.attempts = states.counts_attempts ? states.attempts[i] : std::uint16_t{1};
  found.instance = states.instance[i];
  found.output_tokens = std::min(states.emitted[i], requests.output_tokens(id));
  found.cached_tokens = states.keeps_cached ? states.cached_tokens[i] : 0;
  found.preemptions = states.preemptions[i];
  found.dispatched = states.dispatched[i];
  if (states.scheduled[i] <= now) found.scheduled = states.scheduled[i];
  if (states.first_token[i] <= now) found.first_token = states.first_token[i];
  found.arrival_s = sim::to_seconds(requests.first_arrival(id));
  // A step may stamp its end when it starts.
  if (states.first_token[i] <= now) found.ttft_s = latencies.ttft_ns(id) / 1e9;
  found.tpot_s = latencies.tpot_ns(id) / 1e9;
  found.e2e_s = latencies.e2e_ns(id) / 1e9;
  found.queue_s = latencies.queue_ns(id) / 1e9;
  return found;
}

}  // namespace spillway::cluster
