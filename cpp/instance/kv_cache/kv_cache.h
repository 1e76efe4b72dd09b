#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "instance/kv_cache/block_size.h"
#include "instance/kv_cache/config.h"
#include "instance/kv_cache/free_list.h"
#include "sim/ids.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// What a request holds of the KV memory.
///
/// `blocks` counts all blocks that its tokens fill. Most have no name, because nobody will look for
/// them; `special` refers to those that have one: blocks that others may share, and, once it was
/// preempted, those of its own prompt.
struct Holding {
  std::int64_t blocks = 0;
  std::uint32_t special = kNothingSpecial;
  bool returned = false;  ///< it was preempted before
  static constexpr std::uint32_t kNothingSpecial = 0xFFFFFFFF;
};

/// Paged KV memory of one instance: blocks in use and free, and what can be found again in them
/// (`README.md` of the instance, "KV prefix cache").
///
/// Nothing can be found before a prompt shares a segment or a request is preempted, so until then
/// blocks are only counted.
class KvMemory {
 public:
  KvMemory(const KvCache& config, std::int64_t num_blocks, std::int64_t block_size_tokens,
           const workload::RequestTable& requests);
  KvMemory(const KvMemory& other);

  const BlockSize& block_size() const { return block_size_; }
  std::int64_t blocks_for(std::int64_t tokens) const { return block_size_.blocks_for(tokens); }
  std::int64_t total() const { return total_; }
  std::int64_t free() const { return free_; }
  double utilization() const {
    return static_cast<double>(total_ - free_) / static_cast<double>(total_);
  }
  /// The highest utilization so far.
  double peak_utilization() const {
    return static_cast<double>(total_ - least_free_) / static_cast<double>(total_);
  }
  /// Blocks that can be taken without any being forgotten.
  std::int64_t takeable_unnoticed() const { return list_ ? list_->blank_at_head() : free_; }

  /// Whether it matters which request of a step takes its blocks first.
  bool order_matters() const { return list_ && config_.allocation == Allocation::roll_back; }
  /// Nothing can be found yet.
  bool counts_only() const { return !list_; }

  std::int64_t hits() const { return hits_; }
  std::int64_t misses() const { return misses_; }
  std::int64_t lookups() const { return lookups_; }
  /// Blocks that requests hold by a name, each counted once.
  std::int64_t num_named_in_use() const { return list_ ? list_->num_in_use() : 0; }
  /// Blocks of a holding that it has for itself.
  std::int64_t own_blocks(const Holding& holding) const;

  /// Takes blocks that are known to be free.
  void take(std::int64_t blocks) {
    free_ -= blocks;
    least_free_ = std::min(least_free_, free_);
    misses_ += blocks;
    if (list_) list_->take(blocks);
  }

  /// Blocks of a prompt, from the first on, that can be found. Its own are left out: they are there
  /// only if it was.
  std::int64_t count_found(sim::RequestId id) const;

  // ---- a request that enters ---------------------------------------------------------------

  /// How many tokens of a request of `known` tokens are found; `admit` refers to the last call.
  /// `returns`: it has been here before.
  std::int64_t find(sim::RequestId id, std::int64_t known, bool returns);
  /// References the blocks found and takes those that it needs for `tokens` more. False if that
  /// does not fit.
  bool admit(sim::RequestId id, Holding& holding, std::int64_t tokens);

  // ---- a request that is there -------------------------------------------------------------

  /// Extends what it holds to `tokens` tokens. False, and no change, if that does not fit.
  bool extend(sim::RequestId id, Holding& holding, std::int64_t tokens) {
    const std::int64_t missing = blocks_for(tokens) - holding.blocks;
    if (missing > free_) return false;
    if (missing > 0) {
      take(missing);
      holding.blocks += missing;
    }
    if (list_) register_full(id, holding, tokens);
    return true;
  }
  /// It leaves for good with `computed` tokens.
  void leave(const Holding& holding, std::int64_t computed, bool has_output);
  /// It is preempted with `computed` tokens, and may return.
  void give_up(sim::RequestId id, Holding& holding, std::int64_t computed);

 private:
  /// Blocks of a holding that are not simply its own.
  struct Special {
    std::vector<FreeList::Node> named;  // its first blocks
    std::int64_t absent = 0;            // or: first blocks that it does without
  };

  void register_full(sim::RequestId id, Holding& holding, std::int64_t tokens);
  Special& special_of(Holding& holding);
  std::int64_t num_special(const Holding& holding) const;
  void release_named(const Holding& holding);

  KvCache config_;
  BlockSize block_size_;
  std::int64_t total_;
  std::int64_t free_;
  std::int64_t least_free_;
  const workload::RequestTable& requests_;
  std::unique_ptr<FreeList> list_;  // once something can be found
  std::vector<Special> specials_;
  std::vector<std::uint32_t> unused_specials_;
  // The request that enters.
  std::vector<FreeList::Node> found_;
  std::int64_t prompt_blocks_ = 0;
  bool returns_ = false;

  std::int64_t hits_ = 0;
  std::int64_t misses_ = 0;
  std::int64_t lookups_ = 0;
};

}  // namespace spillway::instance
