#pragma once

#include <cstdint>

#include "instance/kv_cache/config.h"
#include "sim/flat_map.h"
#include "sim/linked_list.h"

namespace spillway::instance {

/// The blocks that can be reused, and the order in which free ones are taken. A block is known by
/// the identity of its content (a well mixed number). Blocks that no request will ever look for are
/// blank: only their number is kept.
class FreeList {
 public:
  /// A block with an identity.
  using Node = std::int32_t;
  static constexpr Node kNone = sim::FlatMap::kNone;

  FreeList(std::int64_t num_blank, Allocation allocation) : allocation_(allocation) {
    append_blank(num_blank);
  }

  /// The block registered under an identity, or kNone.
  Node find(std::uint64_t identity) const { return registered_.find(identity); }
  bool is_free(Node node) const { return nodes_[node].references == 0; }

  /// Takes blocks from the head; those with an identity are forgotten. Precondition: the list has
  /// this many.
  void take(std::int64_t blocks);
  /// Number of blank blocks before the first one with an identity.
  std::int64_t blank_at_head() const;
  /// Appends blank blocks to the tail.
  void append_blank(std::int64_t blocks);
  /// Appends a block and registers it.
  void append(std::uint64_t identity);

  /// Adds a block in use, registered, with one reference.
  Node add(std::uint64_t identity);
  /// Adds a reference; true if the block thereby leaves the free list.
  bool reference(Node node);
  /// Removes a reference; true if the block thereby joins the tail of the free list.
  bool release(Node node);

  /// Blocks in use that have an identity.
  std::int64_t num_in_use() const { return in_use_; }

 private:
  struct Entry {
    std::uint64_t identity = 0;
    std::int64_t blank = 0;  // length of a run of blank blocks; 0: a block with an identity
    std::int32_t references = 0;
  };
  void forget(Node node);

  Allocation allocation_;
  sim::LinkedList<Entry> nodes_;  // the free blocks in order; those in use outside of it
  sim::FlatMap registered_;
  std::int64_t in_use_ = 0;
};

}  // namespace spillway::instance
