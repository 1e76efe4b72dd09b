#include "instance/group.h"

namespace spillway::instance {

void InstanceGroup::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (max_model_len == 1) {
    out.push_back(
        {sim::join_path(path, "max_model_len"), "1", "must be 0 (no cap) or >= 2 (tokens)"});
  }
}

}  // namespace spillway::instance
