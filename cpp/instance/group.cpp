#include "instance/group.h"

namespace spillway::instance {

void InstanceGroup::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (max_model_len == 1) {
    out.push_back(
        {sim::join_path(path, "max_model_len"), "1", "must be 0 (unlimited) or >= 2 (tokens)"});
  }
  if (std::holds_alternative<DualLimitGate>(ingress) && completion != Completion::step_end) {
    out.push_back({sim::join_path(path, "completion"), "step_start",
                   "must be step_end with a dual_limit_gate, which waits for first tokens"});
  }
}

}  // namespace spillway::instance
