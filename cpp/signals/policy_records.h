#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "signals/compiled_policy.h"
#include "signals/view.h"
#include "sim/time.h"

/// What compiled policies of a user see; tests compare the layouts with those of the C header.
namespace spillway::signals {

/// `spillway_attribute`.
struct AttributeRecord {
  const char* name = nullptr;
  const char* value = nullptr;
  std::int64_t number = -1;
};

/// `spillway_request`.
struct RequestRecord {
  std::int64_t id = 0;
  std::int64_t input_tokens = 0;
  std::int64_t tenant = 0;
  std::int64_t slo_class = 0;
  std::int64_t priority = 0;
  double arrival_s = 0;
  double uniform = std::numeric_limits<double>::quiet_NaN();
  std::int64_t max_tokens = 0;
  std::int64_t predicted_output_tokens = 0;
  std::int64_t model = 0;
  std::uint64_t model_name = 0;  ///< address of a text
  std::int64_t num_attributes = 0;
  std::uint64_t attributes = 0;  ///< address of the first AttributeRecord
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

/// `spillway_legs`.
struct LegsRecord {
  std::int64_t prompt_tokens = 0;
  std::int64_t prompt_blocks = 0;
  std::int64_t decode_instance = -1;
  std::int64_t decode_cached_tokens = 0;
  std::int64_t decode_pending_tokens = 0;
  std::int64_t decode_blocks_in_flight = 0;
  std::int64_t decode_max_num_batched_tokens = 0;
  std::int64_t decode_num_kv_blocks = 0;
  std::int64_t prefill_instance = -1;
  std::int64_t prefill_cached_tokens = 0;
  std::int64_t prefill_pending_tokens = 0;
  std::int64_t prefill_blocks_in_flight = 0;
  std::int64_t prefill_max_num_batched_tokens = 0;
  std::int64_t prefill_num_kv_blocks = 0;
};

static_assert(sizeof(const void*) == sizeof(std::uint64_t), "members of records have 8 bytes");

/// The values of a request in the further columns of the trace.
[[gnu::noinline]] inline void record(const RequestView& request,
                                     std::vector<AttributeRecord>& attributes) {
  const auto all = request.attributes();
  attributes.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint32_t number = request.attribute(i);
    const bool has_value = number != workload::Attribute::kNone;
    attributes[i] = {.name = all[i].name.c_str(),
                     .value = has_value ? all[i].values[number].c_str() : "",
                     .number = has_value ? std::int64_t{number} : -1};
  }
}

/// Writes the record of a request. `attributes` holds those of the record, which points there until
/// the next call.
[[gnu::always_inline]] inline void record(const RequestView& request,
                                          std::vector<AttributeRecord>& attributes,
                                          RequestRecord& seen) {
  seen.id = request.row();
  seen.input_tokens = request.input_tokens();
  seen.tenant = request.tenant();
  seen.slo_class = request.slo_class();
  seen.priority = request.priority();
  seen.arrival_s = sim::to_seconds(request.arrival());
  seen.max_tokens = request.max_tokens();
  seen.predicted_output_tokens = request.predicted_output_tokens();
  seen.model = request.model_index();
  const char* const model = seen.model > 0 ? request.model().c_str() : "";
  seen.model_name = reinterpret_cast<std::uint64_t>(model);
  if (request.attributes().empty()) return;
  record(request, attributes);
  seen.num_attributes = static_cast<std::int64_t>(attributes.size());
  seen.attributes = reinterpret_cast<std::uint64_t>(attributes.data());
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
