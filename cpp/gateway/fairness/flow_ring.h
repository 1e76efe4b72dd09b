#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/ids.h"

namespace spillway::gateway {

/// A set of flows, iterated as a ring in the order of the tenants: a bit per flow.
class FlowRing {
 public:
  explicit FlowRing(std::size_t num_flows) : words_((num_flows + 63) / 64) {}

  std::size_t size() const { return size_; }
  bool contains(sim::TenantId flow) const { return (word(flow) & bit(flow)) != 0; }
  void insert(sim::TenantId flow) {
    if (contains(flow)) return;
    word(flow) |= bit(flow);
    ++size_;
  }
  void erase(sim::TenantId flow) {
    if (!contains(flow)) return;
    word(flow) &= ~bit(flow);
    --size_;
  }
  /// The next member after `flow`, which may be no member; `flow` itself if it is the only one.
  /// Precondition: not empty.
  sim::TenantId after(sim::TenantId flow) const {
    std::size_t i = flow.index() / 64;
    std::uint64_t rest = words_[i] & ~(bit(flow) | (bit(flow) - 1));
    while (rest == 0) {
      i = i + 1 == words_.size() ? 0 : i + 1;
      rest = words_[i];
    }
    return sim::TenantId{64 * i + static_cast<std::size_t>(std::countr_zero(rest))};
  }

 private:
  static std::uint64_t bit(sim::TenantId flow) { return std::uint64_t{1} << (flow.index() % 64); }
  std::uint64_t& word(sim::TenantId flow) { return words_[flow.index() / 64]; }
  const std::uint64_t& word(sim::TenantId flow) const { return words_[flow.index() / 64]; }

  std::vector<std::uint64_t> words_;
  std::size_t size_ = 0;
};

}  // namespace spillway::gateway
