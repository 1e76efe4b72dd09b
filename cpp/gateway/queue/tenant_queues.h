#pragma once

#include <cstdint>
#include <vector>

#include "sim/ids.h"
#include "sim/ring.h"

namespace spillway::gateway {

/// The requests that wait for a permit, one first-in-first-out flow per tenant. Every admitted
/// request passes through, also when permits are free.
class TenantQueues {
 public:
  struct Entry {
    sim::RequestId request;
    std::uint64_t serial = 0;  ///< order of entry over all flows
  };

  explicit TenantQueues(std::size_t num_tenants) : flows_(num_tenants) {}

  void push(sim::TenantId flow, sim::RequestId request) {
    flows_[flow.index()].push_back({request, next_serial_++});
    ++size_;
  }
  /// Precondition for these: the flow is not empty.
  const Entry& head(sim::TenantId flow) const { return flows_[flow.index()].front(); }
  sim::RequestId pop(sim::TenantId flow) {
    const sim::RequestId request = head(flow).request;
    flows_[flow.index()].pop_front();
    --size_;
    return request;
  }

  std::size_t num_flows() const { return flows_.size(); }
  std::size_t length(sim::TenantId flow) const { return flows_[flow.index()].size(); }
  std::size_t size() const { return size_; }

 private:
  std::vector<sim::Ring<Entry>> flows_;
  std::uint64_t next_serial_ = 0;
  std::size_t size_ = 0;
};

}  // namespace spillway::gateway
