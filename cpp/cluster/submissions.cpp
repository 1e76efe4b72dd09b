#include "cluster/submissions.h"

#include <algorithm>
#include <limits>

#include "metrics/latencies.h"

namespace spillway::cluster {

using sim::RequestId;
using sim::Time;
using workload::Outcome;

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

template <class Named>
std::size_t position(const std::vector<Named>& all, const std::string& name) {
  return static_cast<std::size_t>(std::ranges::find(all, name, &Named::name) - all.begin());
}

}  // namespace

bool Submissions::are_known(const workload::Submission& request) const {
  const workload::RequestTable& requests = record_.requests;
  return position(requests.tenants, request.tenant) < requests.tenants.size() &&
         position(requests.slo_classes, request.slo_class) < requests.slo_classes.size();
}

std::size_t Submissions::add(const workload::Submission& request) {
  all_.push_back({.request = request,
                  .tenant = position(record_.requests.tenants, request.tenant),
                  .slo_class = position(record_.requests.slo_classes, request.slo_class)});
  return all_.size() - 1;
}

std::optional<std::size_t> Submissions::number_of(RequestId id) const {
  return id.index() < number_of_.size() ? number_of_[id.index()] : std::nullopt;
}

void Submissions::note_arrival(RequestId id, std::optional<std::size_t> number) {
  number_of_.resize(std::max(number_of_.size(), id.index() + 1));
  number_of_[id.index()] = number;
  if (number) all_[*number].handle = record_.requests.handle(id);
}

void Submissions::awaits_retry(RequestId id, bool awaits) {
  if (const auto number = number_of(id)) all_[*number].awaits_retry = awaits;
}

void Submissions::keep_final(RequestId id) {
  const auto number = number_of(id);
  if (!number) return;
  SubmissionStatus last = status(*number, sim::kForever);
  last.has_ended = true;
  all_[*number].final = last;
}

SubmissionStatus Submissions::status(std::size_t number, Time now) const {
  const Submitted& submitted = all_[number];
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
  found.arrival_s = sim::to_seconds(requests.first_arrival(id));
  // A step may stamp its end when it starts.
  if (states.first_token[i] <= now) found.ttft_s = latencies.ttft_ns(id) / 1e9;
  found.tpot_s = latencies.tpot_ns(id) / 1e9;
  found.e2e_s = latencies.e2e_ns(id) / 1e9;
  found.queue_s = latencies.queue_ns(id) / 1e9;
  return found;
}

}  // namespace spillway::cluster
