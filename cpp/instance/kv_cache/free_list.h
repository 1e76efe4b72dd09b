#pragma once

#include <algorithm>
#include <cstdint>

#include "instance/engine_rules.h"
#include "instance/kv_cache/config.h"
#include "sim/flat_map.h"
#include "sim/linked_list.h"

namespace spillway::instance {

/// The blocks that can be reused, and the order in which free ones are taken.
///
/// A block is known by its content: the key of a beginning of prompts (a well mixed number), and
/// its position there. Consecutive blocks of a beginning with the same references are one run, so a
/// shared prompt is one entry; a run is cut where its blocks come to differ. Blocks that no request
/// will ever look for are blank: only their number is kept.
class FreeList {
 public:
  using Run = std::int32_t;
  static constexpr Run kNone = sim::FlatMap::kNone;
  /// The first `blocks` blocks of a run; also after it has been cut.
  struct Stretch {
    Run run = kNone;
    std::int64_t blocks = 0;
  };

  FreeList(std::int64_t num_blank, Allocation allocation, EqualBlocks equal = EqualBlocks::last)
      : allocation_(allocation), equal_(equal) {
    append_blank(num_blank);
  }

  /// Calls `f(stretch)` for the registered blocks first, first + 1, … of a beginning, up to `end`
  /// or the first that is not registered; returns their number. Precondition: none before `first`
  /// is registered.
  template <class F>
  std::int64_t walk(std::uint64_t key, std::int64_t first, std::int64_t end, const F& f) const {
    std::int64_t block = first;
    Run run = block < end ? registered_.find(key) : kNone;
    while (run != kNone && nodes_[run].first == block && block < end) {
      const std::int64_t blocks = std::min(nodes_[run].blocks, end - block);
      f(Stretch{run, blocks});
      block += blocks;
      run = nodes_[run].following;
    }
    return block - first;
  }
  EqualBlocks equal() const { return equal_; }
  bool is_free(Run run) const { return nodes_[run].references == 0; }

  /// Takes blocks from the head; those with an identity are forgotten. Precondition: the list has
  /// this many.
  void take(std::int64_t blocks);
  /// Number of blank blocks before the first one with an identity.
  std::int64_t blank_at_head() const;
  /// Appends blank blocks to the tail.
  void append_blank(std::int64_t blocks);
  /// Puts blank blocks at the head.
  void prepend_blank(std::int64_t blocks);
  /// Appends blocks of a beginning, from the last to the first, and registers them.
  void append(std::uint64_t key, std::int64_t first, std::int64_t blocks);

  /// Adds blocks in use, registered, with one reference.
  Stretch add(std::uint64_t key, std::int64_t first, std::int64_t blocks);
  /// The same for the blocks that follow a stretch with a reference, as a part of its run; false,
  /// without a change, if other references or another registration prevent that.
  bool extend(Stretch& stretch, std::uint64_t key, std::int64_t blocks);
  /// Adds a reference; returns the number of blocks that thereby leave the free list. Precondition:
  /// the run is as long as the stretch or longer.
  std::int64_t reference(const Stretch& stretch);
  /// Removes a reference; returns the number of blocks that thereby join the tail of the free list,
  /// from the last to the first.
  std::int64_t release(const Stretch& stretch);

  /// Blocks in use that have an identity.
  std::int64_t num_in_use() const { return in_use_; }

 private:
  enum class Kind : std::uint8_t {
    blank,
    registered,
    replaced,  // other blocks are registered under its identities, or were; with
               // `EqualBlocks::first` a copy, which is registered once they are gone
  };
  struct Entry {
    std::uint64_t key = 0;
    std::int64_t first = 0;  // position of its first block in the beginning
    std::int64_t blocks = 0;
    std::int32_t references = 0;  // of each of its blocks
    Run following = kNone;        // the next registered run, or the next copy, of the beginning
    Run rest = kNone;             // what was cut off its end, as long as that is referenced
    Kind kind = Kind::blank;

    std::int64_t end() const { return first + blocks; }
  };

  void cut(Run run, std::int64_t blocks);
  Run unregister(std::uint64_t key, std::int64_t first, std::int64_t end);
  Run last_before(std::uint64_t key, std::int64_t first) const;
  void link_registered(Run run, Run before);
  void enroll(Run run);
  void enroll_behind(Run run);
  void add_copy(Run run);
  void remove_copy(Run run);
  void promote_copies(std::uint64_t key, std::int64_t first, std::int64_t end);
  void forget_last(Run run, std::int64_t blocks);
  void shorten(Run run, std::int64_t blocks);
  void take_last(Run run, std::int64_t blocks);

  Allocation allocation_;
  EqualBlocks equal_;
  sim::LinkedList<Entry> nodes_;  // the free blocks in order; those in use outside of it
  sim::FlatMap registered_;       // beginning → its first registered run
  sim::FlatMap copies_;           // beginning → its first copy, in order of registration
  std::int64_t in_use_ = 0;
};

}  // namespace spillway::instance
