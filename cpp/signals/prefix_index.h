#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/flat_map.h"
#include "sim/ids.h"
#include "sim/linked_list.h"
#include "workload/request_table.h"

namespace spillway::signals {

/// Approximate prefix index: the beginnings of prompts that were sent to each rank of an instance,
/// in an LRU memory of a number of blocks per rank.
///
/// A block stands for the beginning that it ends, so the blocks of one shared segment are always
/// sent together and in order. They are kept as one run, whose first blocks are forgotten first.
/// Unshared blocks only occupy capacity.
class PrefixIndex {
 public:
  /// `capacity_blocks`: of each rank; `ranks`: the number of ranks of each instance.
  PrefixIndex(std::int64_t capacity_blocks, std::int64_t block_size_tokens,
              const workload::RequestTable& requests, std::span<const std::size_t> ranks);

  std::int64_t block_size_tokens() const { return block_size_tokens_; }

  /// The blocks that end within one shared segment.
  struct Stretch {
    std::uint64_t key = 0;
    std::int64_t blocks = 0;
  };
  struct Prompt {
    std::optional<std::uint32_t> row;
    std::int64_t blocks = 0;  ///< all full ones
    std::vector<Stretch> stretches;
  };
  /// The prompt of the request; valid until that of another one is read.
  const Prompt& prompt(sim::RequestId id) {
    if (prompt_.row != requests_.row(id)) load_prompt(id);
    return prompt_;
  }

  /// Number of leading full blocks that were sent to the rank and are remembered.
  std::int64_t matched_blocks(const Prompt& prompt, std::size_t instance, std::size_t rank) const {
    return memories_[instance][rank].matched(prompt);
  }
  /// The maximum over the ranks of the instance.
  std::int64_t matched_blocks(const Prompt& prompt, std::size_t instance) const {
    std::int64_t most = 0;
    for (const Memory& rank : memories_[instance]) most = std::max(most, rank.matched(prompt));
    return most;
  }
  /// The same of the request.
  std::int64_t matched_blocks(sim::RequestId id, std::size_t instance, std::size_t rank) {
    return matched_blocks(prompt(id), instance, rank);
  }
  std::int64_t matched_blocks(sim::RequestId id, std::size_t instance) {
    return matched_blocks(prompt(id), instance);
  }
  /// Number of blocks that are remembered of the instance, over its ranks.
  std::int64_t remembered_blocks(std::size_t instance) const {
    std::int64_t sum = 0;
    for (const Memory& rank : memories_[instance]) sum += rank.blocks;
    return sum;
  }
  /// Whether any block was forgotten for lack of room.
  bool has_forgotten() const { return has_forgotten_; }
  /// The request is sent there.
  void sent(sim::RequestId id, std::size_t instance, std::size_t rank);

 private:
  struct Run {
    std::uint64_t key = 0;    // 0: unshared blocks
    std::int64_t blocks = 0;  // remembered: the last ones of `whole`
    std::int64_t whole = 0;
  };
  using Runs = sim::LinkedList<Run>;
  /// The blocks sent to one rank.
  struct Memory {
    Runs runs;  // the oldest first
    sim::FlatMap by_key;
    std::int64_t blocks = 0;

    std::int64_t matched(const Prompt& prompt) const {
      std::int64_t sum = 0;
      for (const Stretch& stretch : prompt.stretches) {
        const Runs::Handle at = by_key.find(stretch.key);
        // A run whose first blocks are forgotten cannot match.
        if (at == Runs::kNone || runs[at].blocks < runs[at].whole) break;
        sum += stretch.blocks;
      }
      return sum;
    }
    void remember(std::uint64_t key, std::int64_t blocks);
    void forget_oldest(std::int64_t blocks);
  };

  void load_prompt(sim::RequestId id);

  std::int64_t capacity_blocks_;
  std::int64_t block_size_tokens_;
  bool has_forgotten_ = false;
  const workload::RequestTable& requests_;
  std::vector<std::vector<Memory>> memories_;  // by instance and rank
  Prompt prompt_;                              // the latest one
};

}  // namespace spillway::signals
