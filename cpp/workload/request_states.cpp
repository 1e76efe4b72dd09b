#include "workload/request_states.h"

namespace spillway::workload {

namespace {

// Calls `f(column, blank)` for every column that is kept.
template <class F>
void for_each_column(RequestStates& states, const F& f) {
  f(states.admitted, sim::kUnset);
  f(states.dispatched, sim::kUnset);
  f(states.instance, -1);
  f(states.enqueued, sim::kUnset);
  f(states.scheduled, sim::kUnset);
  f(states.first_token, sim::kUnset);
  f(states.finished, sim::kUnset);
  f(states.emitted, 0);
  f(states.preemptions, 0);
  f(states.outcome, Outcome::in_transit);
  f(states.reason, ReasonCode{});
  if (states.resumes) f(states.resumptions, Resumption{});
  if (states.keeps_cached) f(states.cached_tokens, 0);
  if (states.has_ranks) f(states.rank, std::int16_t{-1});
  if (states.counts_attempts) f(states.attempts, std::uint16_t{1});
  if (states.keeps_retry_after) f(states.retry_after, sim::Time{0});
  if (states.keeps_copies) f(states.copies, Copies::one);
  if (!states.reports) return;
  f(states.reported_ttft, sim::Time{0});
  f(states.reported_decode, sim::Time{0});
}

}  // namespace

void RequestStates::resize(std::size_t size) {
  for_each_column(*this, [&](auto& column, const auto& blank) { column.resize(size, blank); });
}

void RequestStates::copy(sim::RequestId from, sim::RequestId to) {
  for_each_column(*this,
                  [&](auto& column, const auto&) { column[to.index()] = column[from.index()]; });
}

void RequestStates::clear(sim::RequestId id) {
  for_each_column(*this, [&](auto& column, const auto& blank) { column[id.index()] = blank; });
}

}  // namespace spillway::workload
