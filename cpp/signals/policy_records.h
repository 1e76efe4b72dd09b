#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "signals/compiled_policy.h"
#include "signals/view.h"
#include "sim/time.h"

/// What compiled policies of a user see; tests compare the layouts with those of the C header.
namespace spillway::signals {

/// `spillway_request`.
struct RequestRecord {
  std::int64_t id = 0;
  std::int64_t input_tokens = 0;
  std::int64_t tenant = 0;
  std::int64_t slo_class = 0;
  std::int64_t priority = 0;
  double arrival_s = 0;
  double uniform = std::numeric_limits<double>::quiet_NaN();
};

/// `spillway_instance`.
struct InstanceRecord {
  std::int64_t instance = 0;
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  std::int64_t in_flight = 0;
  std::int64_t free_blocks = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t num_kv_blocks = 0;
  std::int64_t max_num_seqs = 0;
  double kv_utilization = 0;
  double age_s = 0;
};

inline RequestRecord record_of(const RequestView& request) {
  return {.id = request.row(),
          .input_tokens = request.input_tokens(),
          .tenant = request.tenant(),
          .slo_class = request.slo_class(),
          .priority = request.priority(),
          .arrival_s = sim::to_seconds(request.arrival())};
}

/// The records of all candidates of a view.
inline void record(const View& view, std::vector<InstanceRecord>& records) {
  records.resize(view.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const InstanceSignal seen = view.instance(i);
    const Capacity capacity = view.capacity(i);
    records[i] = {.instance = static_cast<std::int64_t>(view.id(i).index()),
                  .waiting = seen.waiting,
                  .running = seen.running,
                  .in_flight = view.in_flight(i),
                  .free_blocks = seen.free_blocks,
                  .prefill_tokens = seen.prefill_tokens,
                  .num_kv_blocks = capacity.num_kv_blocks,
                  .max_num_seqs = capacity.max_num_seqs,
                  .kv_utilization = seen.kv_utilization,
                  .age_s = sim::is_set(seen.measured) ? sim::to_seconds(view.now() - seen.measured)
                                                      : std::numeric_limits<double>::quiet_NaN()};
  }
}

}  // namespace spillway::signals
