#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "instance/kv_cache/block_size.h"
#include "instance/kv_cache/config.h"
#include "instance/kv_cache/free_list.h"
#include "instance/kv_cache/holding.h"
#include "sim/ids.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// Counts of one KV memory so far.
struct KvCounts {
  std::int64_t hits = 0;         ///< cached blocks that requests reused
  std::int64_t misses = 0;       ///< blocks taken from the free list
  std::int64_t lookups = 0;      ///< full prompt blocks of the requests that entered the batch
  std::int64_t most_in_use = 0;  ///< maximum so far
};

/// Paged KV memory of one instance: blocks in use and free blocks, and the prefixes cached in them
/// (`README.md` of the instance, "KV prefix cache").
///
/// No block can be found before a prompt shares a segment or a request is preempted, so until then
/// blocks are only counted. A copy is independent of the original.
class KvMemory {
 public:
  /// `has_eagle`: blocks are found as its drafts require.
  KvMemory(const KvCache& config, const EngineRules& rules, bool has_eagle, std::int64_t num_blocks,
           std::int64_t block_size_tokens, const workload::RequestTable& requests);

  const BlockSize& block_size() const { return block_size_; }
  std::int64_t blocks_for(std::int64_t tokens) const { return block_size_.blocks_for(tokens); }
  std::int64_t total() const { return total_; }
  std::int64_t free() const { return free_; }
  /// Number of blocks that can be taken without forgetting a cached one.
  std::int64_t takeable_without_eviction() const {
    return is_listed_ ? list_.blank_at_head() : free_;
  }

  /// Whether it makes no difference when requests take their blocks, if all of them together need
  /// `blocks` to their end: they fit, and no cached block is forgotten for them.
  bool may_take_late(std::int64_t blocks) const {
    return blocks <= (is_listed_ ? list_.blank_at_head() : total_) && !config_.stores_last_token;
  }
  /// Whether the order in which the requests of a step take blocks matters.
  bool order_matters() const { return is_listed_ && config_.allocation == Allocation::roll_back; }
  /// Whether blocks are only counted: none can be found yet.
  bool counts_only() const { return !is_listed_; }
  /// Blocks that must stay free when a request of `known` tokens joins with `tokens` of them
  /// computed or allocated, besides those it takes; `alone`: no other request holds memory.
  std::int64_t spare_blocks(std::int64_t known, std::int64_t tokens, bool alone) const {
    const bool reserves = config_.reserve_full_prompt && tokens < known;
    const std::int64_t rest = reserves ? blocks_for(known) - blocks_for(tokens) : 0;
    return rest + (alone ? 0 : watermark_blocks_);
  }

  const KvCounts& counts() const { return counts_; }
  /// No request holds blocks of a new process, and none can be found; the counts go on.
  void restart(const KvCounts& counts);
  /// No free block can be found any more.
  void forget_cached();
  /// As many blocks have been in use at once.
  void note_in_use(std::int64_t blocks) {
    counts_.most_in_use = std::max(counts_.most_in_use, blocks);
  }
  /// Number of blocks with an identity that requests hold, each counted once.
  std::int64_t num_named_in_use() const { return is_listed_ ? list_.num_in_use() : 0; }
  /// Number of blocks of a holding outside its prefix.
  std::int64_t own_blocks(const Holding& holding) const;

  /// Takes free blocks. Precondition: there are enough.
  void take(std::int64_t blocks) {
    free_ -= blocks;
    note_in_use(total_ - free_);
    counts_.misses += blocks;
    if (is_listed_) list_.take(blocks);
  }

  /// Number of leading blocks of a prompt that are cached, without its unshared ones, which are
  /// cached only after a preemption.
  std::int64_t count_found(sim::RequestId id) const;

  // ---- a request enters --------------------------------------------------------------------

  /// Number of cached tokens of a request of `known` tokens; `admit` refers to the last call.
  /// `returns`: it returns after a preemption.
  std::int64_t find(sim::RequestId id, std::int64_t known, bool returns);
  /// References the found blocks and takes new ones for `tokens` more tokens; `known` as in
  /// `extend`. False if they do not fit, or leave less than `spare_blocks` free.
  bool admit(sim::RequestId id, Holding& holding, std::int64_t tokens, std::int64_t known,
             std::int64_t spare_blocks);
  /// Number of full blocks in `tokens` tokens that can be found.
  std::int64_t findable_blocks(std::int64_t tokens) const {
    return block_size_.whole(std::max<std::int64_t>(0, tokens - next_));
  }

  // ---- a request in the memory -------------------------------------------------------------

  /// Extends its holding to `tokens` tokens; its first `known` tokens may be found in full blocks.
  /// False, without a change, if they do not fit.
  bool extend(sim::RequestId id, Holding& holding, std::int64_t tokens, std::int64_t known) {
    const std::int64_t missing = blocks_for(tokens) - holding.blocks;
    if (missing > free_) return false;
    if (missing > 0) {
      take(missing);
      holding.blocks += missing;
    }
    if (holding.to_register > 0) register_full(id, holding, known);
    return true;
  }
  /// The first `tokens` tokens of a holding may be found from now on.
  void register_known(sim::RequestId id, Holding& holding, std::int64_t tokens) {
    if (holding.to_register > 0) register_full(id, holding, tokens);
  }
  /// The request leaves with `computed` tokens, of which blocks of `known` have a content.
  void leave(const Holding& holding, std::int64_t computed, std::int64_t known, bool has_output) {
    std::int64_t own = own_blocks(holding);
    if (config_.stores_last_token && has_output && block_size_.rest(computed) == 0 && free_ > 0) {
      take(1);
      ++own;
    }
    free_ += own;
    if (is_listed_) free_listed(holding, known, own);
  }
  /// The request is preempted; blocks of `known` tokens have a content.
  void preempt(sim::RequestId id, Holding& holding, std::int64_t known);

 private:
  void list_blocks();
  void fill(std::span<const workload::CachedPart> parts);
  void free_blank(std::int64_t blocks);
  // The output of a request as a segment behind its prompt; without tokens, if no prompt repeats
  // it.
  workload::Segment answer_of(sim::RequestId id) const {
    return config_.generated_tokens ? repeated_answer_of(id) : workload::Segment{};
  }
  workload::Segment repeated_answer_of(sim::RequestId id) const;
  void free_listed(const Holding& holding, std::int64_t known, std::int64_t own);
  std::int64_t blocks_to_register(sim::RequestId id) const;
  void register_full(sim::RequestId id, Holding& holding, std::int64_t tokens);
  void release_registered(const Holding& holding);

  KvCache config_;
  FreeBlocks order_;
  std::int64_t next_ = 0;    // tokens behind a block that decide whether it is found
  bool drops_last_ = false;  // the last block found is not reused
  BlockSize block_size_;
  std::int64_t total_;
  std::int64_t free_;
  std::int64_t watermark_blocks_;
  const workload::RequestTable& requests_;
  FreeList list_;           // the free blocks, once blocks can be found
  bool is_listed_ = false;  // whether `list_` is kept
  PrefixBlocks prefixes_;
  // The entering request.
  std::vector<FreeList::Stretch> found_;
  std::int64_t found_blocks_ = 0;
  std::int64_t prompt_blocks_ = 0;
  bool returns_ = false;

  KvCounts counts_;
};

}  // namespace spillway::instance
