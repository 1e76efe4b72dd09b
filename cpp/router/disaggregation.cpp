#include "router/disaggregation.h"

namespace spillway::router {

void Disaggregation::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  const bool is_after = handoff == Handoff::after_prefill;
  if (ends_at_first_token && !(is_after && order == LegOrder::prefill_first)) {
    out.push_back({sim::join_path(path, "ends_at_first_token"), "true",
                   "must be false unless the decode instance is chosen after the prefill (order: "
                   "prefill_first, handoff: after_prefill)"});
  }
  if (prefill_max_retries > 0 && !(is_after && order == LegOrder::decode_first)) {
    out.push_back({sim::join_path(path, "prefill_max_retries"), std::to_string(prefill_max_retries),
                   "must be 0 unless the chosen decode instance has the prompt computed (order: "
                   "decode_first, handoff: after_prefill)"});
  }
}

}  // namespace spillway::router
