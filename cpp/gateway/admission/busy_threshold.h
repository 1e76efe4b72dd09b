#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;

/// NVIDIA Dynamo's request rejection: rejects everything while all workers are busy.
struct BusyThreshold {
  bool proportional = false;
  std::int64_t overload_status = 529;

  static constexpr std::string_view kind = "busy_threshold", type_name = "BusyThreshold";
  static constexpr std::string_view doc =
      "Rejects every request while all workers are busy, by the rules of busy_monitor (NVIDIA "
      "Dynamo's request rejection), and while there is no worker. With prefill and decode pools "
      "those of the pool in which the first instance of a request is chosen; a request that is "
      "about to "
      "get an instance of the decode pool after its prefill is then rejected with "
      "decode_overloaded while all of these are busy.";
  static void fields(auto field) {
    field("proportional", &BusyThreshold::proportional,
          "Whether requests are also rejected while some workers are busy, with the share of busy "
          "workers as the probability (not in Dynamo).");
    field("overload_status", &BusyThreshold::overload_status,
          "HTTP status of these rejections (Dynamo DYN_HTTP_OVERLOAD_STATUS_CODE; 503 in 1.2). "
          "Without workers it is 503.")
        .unit("status")
        .range(sim::between(200, 999));
  }
  static constexpr signals::Needs needs{.busy_workers = true};
  bool draws() const { return proportional; }
  static constexpr std::array reasons{
      workload::Reason{"all_workers_busy",
                       workload::categories::kSaturated,
                       "all workers are busy or, with proportional, a share of them",
                       {"busy_monitor.active_decode_blocks_threshold",
                        "busy_monitor.active_prefill_tokens_threshold",
                        "busy_monitor.active_prefill_tokens_threshold_frac"}},
      workload::Reason{"no_workers",
                       workload::categories::kSaturated,
                       "there is no worker",
                       {"fleet.initial_instances", "fleet.target_instances"}}};
};

std::unique_ptr<AdmissionPolicy> make(const BusyThreshold& config);

}  // namespace spillway::gateway
