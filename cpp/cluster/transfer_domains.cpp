#include "cluster/transfer_domains.h"

#include <algorithm>
#include <cstddef>

namespace spillway::cluster {

TransferDomains::TransferDomains(const Simulation& simulation)
    : prefers_(simulation.disaggregation.topology == router::Topology::prefer) {
  if (simulation.disaggregation.topology == router::Topology::any) return;
  for (const instance::InstanceGroup& group : simulation.instances) {
    of_.insert(of_.end(), static_cast<std::size_t>(group.count), &group.transfer_domain);
  }
}

void TransferDomains::keep_near(sim::InstanceId first,
                                std::vector<sim::InstanceId>& choices) const {
  const std::string& domain = *of_[first.index()];
  const auto is_far = [&](sim::InstanceId id) { return *of_[id.index()] != domain; };
  if (prefers_ && (domain.empty() || std::ranges::all_of(choices, is_far))) return;
  std::erase_if(choices, is_far);
}

}  // namespace spillway::cluster
