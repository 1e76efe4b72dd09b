#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "cluster/run.h"

namespace spillway::cluster {

/// The values of one column, one per offered request in order of arrival.
using Column =
    std::variant<std::vector<std::uint8_t>, std::vector<std::int16_t>, std::vector<std::uint16_t>,
                 std::vector<std::int32_t>, std::vector<std::int64_t>, std::vector<double>>;

/// A column of a run's requests, derived from its record on demand. Times are in seconds, NaN where
/// not applicable.
struct ColumnKind {
  std::string_view name;
  Column (*derive)(const RequestRecord& record);
};

/// outcome (position in workload::kOutcomeNames), reason (in metrics::reason_names), admitted (0 or
/// 1, by the gateway), tenant, slo_class (positions in the output's names), instance (−1: never
/// routed), input_tokens, output_tokens (delivered so far), preemptions, arrival_s, ttft_s, e2e_s,
/// tpot_s, queue_s, scheduling_delay_s, itl_mean_s.
const std::vector<ColumnKind>& columns();
/// Further columns, which the run has. With a prefill and a decode pool: prefill_instance (−1: the
/// prompt was computed where the request was continued, or nowhere), prefill_end_s, transfer_s
/// (from the end of the prefill, or from when the blocks of the decode leg were taken, to the
/// arrival of the prompt, with the wait for the link), decode_queue_s (the rest of the time from
/// the end of the prefill to the seat at the decode instance), wasted_tokens (of all attempts;
/// their sum is that of the summary). Where requests migrate: migrations,
/// recomputed_tokens. Where clients hedge: hedge (position in workload::Copies).
std::vector<ColumnKind> further_columns(const RequestRecord& record);
/// Columns of the offered requests, independent of their outcomes: output_tokens, prefix_group
/// (requests whose prompts begin with the same shared segment have the same number, in order of
/// appearance; −1: no shared segment), max_tokens (0: none), model (position in the table's models;
/// 0: none), predicted_output_tokens (as of the last attempt, by length_prediction).
const std::vector<ColumnKind>& offered_columns();

}  // namespace spillway::cluster
