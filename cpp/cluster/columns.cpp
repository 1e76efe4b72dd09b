#include "cluster/columns.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "metrics/latencies.h"
#include "metrics/ledger.h"

namespace spillway::cluster {

namespace {

using sim::RequestId;

template <class T, class Value>
Column derived(const RequestRecord& record, const Value& value) {
  std::vector<T> column(record.offered);
  for (std::size_t row = 0; row < column.size(); ++row) {
    column[row] = static_cast<T>(value(RequestId{row}));
  }
  return column;
}

template <double (metrics::Latencies::*latency_ns)(RequestId) const>
Column latency(const RequestRecord& record) {
  const metrics::Latencies latencies(record.requests, record.states, record.accounting);
  return derived<double>(record, [&](RequestId id) { return (latencies.*latency_ns)(id) / 1e9; });
}

// Seconds of a time or a duration that may be unset.
template <class Value>
Column span(const RequestRecord& record, const Value& value) {
  return derived<double>(record, [&](RequestId id) {
    const sim::Time at = value(id.index());
    return sim::is_set(at) ? sim::to_seconds(at) : std::numeric_limits<double>::quiet_NaN();
  });
}

sim::Time between(sim::Time from, sim::Time to) {
  return sim::is_set(from) && sim::is_set(to) ? to - from : sim::kUnset;
}

Column prefix_group(const RequestRecord& record) {
  std::unordered_map<std::uint64_t, std::size_t> known;
  return derived<std::int32_t>(record, [&](RequestId id) -> std::int64_t {
    const auto segments = record.requests.segments(id);
    if (segments.empty()) return -1;
    const auto number = known.try_emplace(segments.front().content, known.size()).first->second;
    return static_cast<std::int64_t>(number);
  });
}

}  // namespace

const std::vector<ColumnKind>& columns() {
  using R = const RequestRecord&;
  using metrics::Latencies;
  static const std::vector<ColumnKind> all{
      {"outcome",
       [](R r) {
         return derived<std::uint8_t>(r, [&](auto id) { return r.states.outcome[id.index()]; });
       }},
      {"reason",
       [](R r) {
         return derived<std::uint8_t>(
             r, [&](auto id) { return metrics::reason_index(r.states.reason[id.index()]); });
       }},
      {"admitted",
       [](R r) {
         return derived<std::uint8_t>(
             r, [&](auto id) { return sim::is_set(r.states.admitted[id.index()]); });
       }},
      {"tenant",
       [](R r) {
         return derived<std::uint16_t>(r, [&](auto id) { return r.requests.tenant(id); });
       }},
      {"slo_class",
       [](R r) {
         return derived<std::uint16_t>(r, [&](auto id) { return r.requests.slo_class(id); });
       }},
      {"instance",
       [](R r) {
         return derived<std::int32_t>(r, [&](auto id) { return r.states.instance[id.index()]; });
       }},
      {"rank",
       [](R r) {
         return derived<std::int16_t>(r, [&](auto id) {
           if (r.states.has_ranks) return r.states.rank[id.index()];
           return static_cast<std::int16_t>(r.states.instance[id.index()] < 0 ? -1 : 0);
         });
       }},
      {"input_tokens",
       [](R r) {
         return derived<std::int32_t>(r, [&](auto id) { return r.requests.input_tokens(id); });
       }},
      {"output_tokens",
       [](R r) {
         return derived<std::int32_t>(r, [&](auto id) {
           return std::min(r.states.emitted[id.index()], r.requests.output_tokens(id));
         });
       }},
      {"attempts",
       [](R r) {
         return derived<std::uint16_t>(r, [&](auto id) {
           return r.states.counts_attempts ? r.states.attempts[id.index()] : std::uint16_t{1};
         });
       }},
      {"preemptions",
       [](R r) {
         return derived<std::int32_t>(r, [&](auto id) { return r.states.preemptions[id.index()]; });
       }},
      {"arrival_s",
       [](R r) {
         return derived<double>(
             r, [&](auto id) { return sim::to_seconds(r.requests.first_arrival(id)); });
       }},
      {"ttft_s", &latency<&Latencies::ttft_ns>},
      {"e2e_s", &latency<&Latencies::e2e_ns>},
      {"tpot_s", &latency<&Latencies::tpot_ns>},
      {"queue_s", &latency<&Latencies::queue_ns>},
      {"scheduling_delay_s", &latency<&Latencies::scheduling_delay_ns>},
      {"itl_mean_s", &latency<&Latencies::itl_mean_ns>}};
  return all;
}

namespace {

const std::vector<ColumnKind>& migration_columns() {
  using R = const RequestRecord&;
  static const std::vector<ColumnKind> all{
      {"migrations",
       [](R r) {
         return derived<std::int32_t>(
             r, [&](auto id) { return r.states.resumptions[id.index()].migrations; });
       }},
      {"recomputed_tokens", [](R r) {
         return derived<std::int64_t>(
             r, [&](auto id) { return r.states.resumptions[id.index()].recomputed_tokens; });
       }}};
  return all;
}

const std::vector<ColumnKind>& leg_columns() {
  using R = const RequestRecord&;
  static const std::vector<ColumnKind> all{
      {"prefill_instance",
       [](R r) {
         return derived<std::int32_t>(
             r, [&](auto id) { return r.legs->prefill_instance[id.index()]; });
       }},
      {"prefill_end_s",
       [](R r) { return span(r, [&](auto row) { return r.legs->prefill_end[row]; }); }},
      {"transfer_s",
       [](R r) {
         return span(r, [&](auto row) {
           return between(r.legs->transfer_begin[row], r.legs->transfer_end[row]);
         });
       }},
      {"decode_queue_s",
       [](R r) {
         return span(r, [&](auto row) {
           const LegColumns& legs = *r.legs;
           const sim::Time whole = between(legs.prefill_end[row], legs.decode_scheduled[row]);
           if (!sim::is_set(whole)) return whole;
           const sim::Time moving = between(legs.transfer_begin[row], legs.transfer_end[row]);
           return sim::is_set(moving) ? whole - moving : whole;
         });
       }},
      {"wasted_tokens", [](R r) {
         return derived<std::int64_t>(r,
                                      [&](auto id) { return r.legs->wasted_tokens[id.index()]; });
       }}};
  return all;
}

Column hedge(const RequestRecord& record) {
  return derived<std::uint8_t>(record,
                               [&](RequestId id) { return record.states.copies[id.index()]; });
}

}  // namespace

std::vector<ColumnKind> further_columns(const RequestRecord& record) {
  std::vector<ColumnKind> all;
  if (record.legs) all = leg_columns();
  if (record.states.resumes) {
    const std::vector<ColumnKind>& more = migration_columns();
    all.insert(all.end(), more.begin(), more.end());
  }
  if (record.states.keeps_copies) all.push_back({"hedge", &hedge});
  return all;
}

const std::vector<ColumnKind>& offered_columns() {
  static const std::vector<ColumnKind> all{
      {"output_tokens",
       [](const RequestRecord& r) {
         return derived<std::int32_t>(r, [&](auto id) { return r.requests.output_tokens(id); });
       }},
      {"prefix_group", &prefix_group},
      {"max_tokens",
       [](const RequestRecord& r) {
         return derived<std::int32_t>(r, [&](auto id) { return r.requests.max_tokens(id); });
       }},
      {"model",
       [](const RequestRecord& r) {
         return derived<std::int32_t>(r, [&](auto id) { return r.requests.model(id); });
       }},
      {"predicted_output_tokens", [](const RequestRecord& r) {
         return derived<std::int32_t>(
             r, [&](auto id) { return r.requests.predicted_output_tokens(id); });
       }}};
  return all;
}

}  // namespace spillway::cluster
