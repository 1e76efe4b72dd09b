#pragma once

#include <cstdint>
#include <vector>

#include "instance/kv_cache/free_list.h"

namespace spillway::instance {

/// What a request holds of the KV memory.
///
/// `blocks` counts all blocks that its tokens fill. Most have no name, because no request will look
/// for them; `special` refers to those that have one: blocks that others may share, and, once it
/// was preempted, those of its own prompt.
struct Holding {
  std::int64_t blocks = 0;
  std::uint32_t prefix = kNoPrefix;
  bool returned = false;  ///< it was preempted before
  static constexpr std::uint32_t kNoPrefix = 0xFFFFFFFF;
};

/// The blocks of holdings that are not simply their own.
class PrefixBlocks {
 public:
  struct Prefix {
    std::vector<FreeList::Node> named;  ///< the first blocks of the holding
    std::int64_t omitted = 0;           ///< or: first blocks that it does without
  };

  /// Of a holding, which gets some if it has none.
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
  /// How many blocks of the holding are special.
  std::int64_t count(const Holding& holding) const {
    if (holding.prefix == Holding::kNoPrefix) return 0;
    const Prefix& prefix = all_[holding.prefix];
    return std::ssize(prefix.named) + prefix.omitted;
  }
  /// Those with a name. Precondition: the holding has special blocks.
  const std::vector<FreeList::Node>& named(const Holding& holding) const {
    return all_[holding.prefix].named;
  }
  /// The holding has none any more. Precondition: it has special blocks.
  void drop(const Holding& holding) {
    all_[holding.prefix].named.clear();
    all_[holding.prefix].omitted = 0;
    unused_.push_back(holding.prefix);
  }

 private:
  std::vector<Prefix> all_;
  std::vector<std::uint32_t> unused_;
};

}  // namespace spillway::instance
