#pragma once

#include <cstdint>
#include <vector>

#include "instance/kv_cache/free_list.h"

namespace spillway::instance {

/// The KV memory held by a request.
///
/// `blocks` counts all blocks that its tokens occupy. Most of them have no identity, because no
/// request will look for them; `prefix` refers to the first blocks if they have one: blocks that
/// other requests may share and, after a preemption, those of its own prompt.
struct Holding {
  std::int64_t blocks = 0;
  /// Number of first blocks that get an identity when full; 0: all have it.
  std::int64_t to_register = 0;
  std::uint32_t prefix = kNoPrefix;
  bool returned = false;  ///< it was preempted before
  static constexpr std::uint32_t kNoPrefix = 0xFFFFFFFF;
};

/// The prefix blocks of holdings: those that are not simply their own.
class PrefixBlocks {
 public:
  struct Prefix {
    std::vector<FreeList::Stretch> stretches;  ///< the first blocks of the holding, by identity
    std::int64_t blocks = 0;  ///< their number, or that of first blocks that it does not reference
  };

  /// The prefix of a holding, created if it has none.
  Prefix& of(Holding& holding) {
    if (holding.prefix == Holding::kNoPrefix) {
      if (unused_.empty()) {
        unused_.push_back(static_cast<std::uint32_t>(all_.size()));
        all_.emplace_back();
      }
      holding.prefix = unused_.back();
      unused_.pop_back();
    }
    return all_[holding.prefix];
  }
  /// Number of prefix blocks of the holding.
  std::int64_t count(const Holding& holding) const {
    if (holding.prefix == Holding::kNoPrefix) return 0;
    return all_[holding.prefix].blocks;
  }
  /// Precondition: the holding has a prefix.
  const std::vector<FreeList::Stretch>& stretches(const Holding& holding) const {
    return all_[holding.prefix].stretches;
  }
  /// Drops the prefix. Precondition: the holding has one.
  void drop(const Holding& holding) {
    all_[holding.prefix].stretches.clear();
    all_[holding.prefix].blocks = 0;
    unused_.push_back(holding.prefix);
  }

 private:
  std::vector<Prefix> all_;
  std::vector<std::uint32_t> unused_;
};

}  // namespace spillway::instance
