#pragma once

#include <string>
#include <vector>

#include "cluster/config.h"
#include "router/disaggregation.h"
#include "sim/ids.h"

namespace spillway::cluster {

/// Which instances may follow the one that is chosen first for a request, by their transfer
/// domains.
class TransferDomains {
 public:
  /// `simulation` must outlive this.
  explicit TransferDomains(const Simulation& simulation);
  /// Whether any choice depends on them.
  bool matter() const { return !of_.empty(); }
  /// Removes the choices that may not follow. Precondition: domains matter.
  void keep_near(sim::InstanceId first, std::vector<sim::InstanceId>& choices) const;

 private:
  bool prefers_;                        // instead of requiring
  std::vector<const std::string*> of_;  // by instance
};

}  // namespace spillway::cluster
