#include "workload/clients.h"

namespace spillway::workload {

void Client::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (requests_per_s && rate_fraction != 1) {
    out.push_back({sim::join_path(path, "rate_fraction"), sim::to_text(rate_fraction),
                   "must be 1, because requests_per_s is given"});
  }
  if (prefix_group.empty() != (prefix_tokens == 0)) {
    out.push_back({sim::join_path(path, "prefix_tokens"), std::to_string(prefix_tokens),
                   prefix_group.empty() ? "needs a prefix_group to share the tokens with"
                                        : "must be > 0, because prefix_group is given"});
  }
}

}  // namespace spillway::workload
