#include "workload/clients.h"

#include <algorithm>

#include "sim/value.h"

namespace spillway::workload {

void Client::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (requests_per_s && rate_fraction != 1) {
    out.push_back({sim::join_path(path, "rate_fraction"), sim::to_text(rate_fraction),
                   "must be 1, because requests_per_s is given"});
  }
  if (closed_loop() && (requests_per_s || rate_fraction != 1)) {
    const bool is_rate = requests_per_s.has_value();
    out.push_back({sim::join_path(path, is_rate ? "requests_per_s" : "rate_fraction"),
                   sim::to_text(requests_per_s.value_or(rate_fraction)),
                   "does not apply to closed_loop arrivals: their rate follows what is served"});
  }
  if (prefix_group.empty() != (prefix_tokens == 0)) {
    out.push_back({sim::join_path(path, "prefix_tokens"), std::to_string(prefix_tokens),
                   prefix_group.empty() ? "requires a prefix_group"
                                        : "must be > 0, because prefix_group is given"});
  }
}

sim::Time Client::end(sim::Time workload_end) const {
  if (!duration_s) return workload_end;
  return std::min(workload_end, sim::from_seconds(start_s + *duration_s));
}

}  // namespace spillway::workload
