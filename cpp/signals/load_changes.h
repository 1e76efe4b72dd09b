#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/ids.h"

namespace spillway::signals {

/// The latest changes of the instances of a fleet, for any number of readers. A reader keeps the
/// `count` up to which it has read.
///
/// A change may be noted twice, or at the instant before it takes place if no decision is made in
/// between.
class LoadChanges {
 public:
  explicit LoadChanges(std::size_t num_instances) : latest_(std::bit_ceil(num_instances)) {}

  void add(sim::InstanceId id) { latest_[count_++ & (latest_.size() - 1)] = id; }
  /// Every instance may have changed, and which of them are ready.
  void add_all() { count_ += latest_.size() + 1; }

  std::uint64_t count() const { return count_; }
  /// Whether all changes from the k-th on are known. If not, every instance may have changed.
  bool are_known_from(std::uint64_t k) const { return count_ - k <= latest_.size(); }
  /// The instance of the k-th change. Precondition: it is known, and k < count.
  sim::InstanceId operator[](std::uint64_t k) const { return latest_[k & (latest_.size() - 1)]; }

 private:
  std::vector<sim::InstanceId> latest_;  // a ring; its size is a power of two
  std::uint64_t count_ = 0;
};

}  // namespace spillway::signals
