#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/ids.h"
#include "sim/ring.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The requests that wait for a permit, one flow per tenant. Every admitted request passes through,
/// also when permits are free.
class TenantQueues {
 public:
  struct Entry {
    sim::RequestId request;
    std::uint64_t serial = 0;  ///< order of entry over all flows
    sim::Time entered{0};
    double cost = 0;  ///< what its dispatch charges the tenant at once
  };

  explicit TenantQueues(std::size_t num_tenants) : flows_(num_tenants), place_(num_tenants) {}

  void push(sim::TenantId flow, Entry entry) {
    entry.serial = next_serial_++;
    if (length(flow) == 0) {
      place_[flow.index()] = backlogged_.size();
      backlogged_.push_back(flow);
    }
    flows_[flow.index()].push_back(entry);
    ++size_;
  }
  /// Precondition for these: the flow is not empty.
  const Entry& head(sim::TenantId flow) const { return flows_[flow.index()].front(); }
  sim::RequestId pop(sim::TenantId flow) {
    const sim::RequestId request = head(flow).request;
    flows_[flow.index()].pop_front();
    --size_;
    if (length(flow) == 0) {
      const sim::TenantId moved = backlogged_.back();
      backlogged_[place_[flow.index()]] = moved;
      place_[moved.index()] = place_[flow.index()];
      backlogged_.pop_back();
    }
    return request;
  }

  std::size_t num_flows() const { return flows_.size(); }
  std::size_t length(sim::TenantId flow) const { return flows_[flow.index()].size(); }
  std::size_t size() const { return size_; }
  /// The flows that are not empty, in no particular order.
  std::span<const sim::TenantId> backlogged() const { return backlogged_; }

 private:
  std::vector<sim::Ring<Entry>> flows_;
  std::vector<sim::TenantId> backlogged_;
  std::vector<std::size_t> place_;  // of each flow in it
  std::uint64_t next_serial_ = 0;
  std::size_t size_ = 0;
};

}  // namespace spillway::gateway
