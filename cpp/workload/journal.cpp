#include "workload/journal.h"

namespace spillway::workload {

namespace {

// Calls `f(column, blank)` for every column that a row has.
template <class F>
void for_each_column(Journal& journal, const F& f) {
  f(journal.admitted, sim::kUnset);
  f(journal.dispatched, sim::kUnset);
  f(journal.instance, -1);
  f(journal.enqueued, sim::kUnset);
  f(journal.scheduled, sim::kUnset);
  f(journal.first_token, sim::kUnset);
  f(journal.finished, sim::kUnset);
  f(journal.emitted, 0);
  f(journal.preemptions, 0);
  f(journal.outcome, Outcome::in_transit);
  f(journal.reason, ReasonCode{});
  if (journal.has_ranks) f(journal.rank, std::int16_t{-1});
  if (journal.counts_attempts) f(journal.attempts, std::uint16_t{1});
  if (!journal.reports) return;
  f(journal.reported_ttft, sim::Time{0});
  f(journal.reported_decode, sim::Time{0});
}

}  // namespace

void Journal::resize(std::size_t size) {
  for_each_column(*this, [&](auto& column, const auto& blank) { column.resize(size, blank); });
}

void Journal::clear(sim::RequestId id) {
  for_each_column(*this, [&](auto& column, const auto& blank) { column[id.index()] = blank; });
}

}  // namespace spillway::workload
