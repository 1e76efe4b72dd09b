#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "instance/kv_cache/block_size.h"
#include "instance/kv_cache/kv_cache.h"
#include "sim/ids.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// The requests of a batch that decode in every step, kept as sums: no step touches any of them.
///
/// A step needs their number, the sum of their contexts, how many begin a new KV block, and which
/// finish. All of these follow from the step at which a request joined: it emits one token per
/// step, so it finishes after a fixed number of steps, and its KV length modulo the block size
/// moves with the step counter.
class Decoders {
 public:
  /// A decoding request. `entry` is its order of entry into the batch.
  struct Member {
    std::int64_t finish_step = 0;     ///< the step after which it has all its tokens
    std::int64_t final_computed = 0;  ///< tokens whose KV is then in the cache
    std::int64_t taken_blocks = 0;    ///< KV blocks taken for it, while they are taken late
    std::int64_t gaps_begin = 0;      ///< in the recorder's log of gaps
    std::uint32_t entry = 0;
    sim::RequestId id;
    std::uint32_t group = 0;                    ///< of the request
    std::uint32_t prefix = Holding::kNoPrefix;  ///< as in Holding
    bool returned = false;                      ///< as in Holding
    bool is_counted = false;                    ///< in statistics
  };

  /// `counts_tokens`: whether `count_tokens` will be called.
  Decoders(const workload::RequestTable& requests, BlockSize block_size, bool counts_tokens);

  bool empty() const { return size_ == 0; }
  std::int64_t size() const { return size_; }
  /// Total number of tokens whose KV is in the cache.
  std::int64_t context_tokens() const { return context_tokens_; }
  /// Steps until the first request finishes. Precondition: not empty.
  std::int64_t steps_to_finish() const { return members_[first_].finish_step - step_; }

  /// KV blocks that the steps first + 1 … first + count from now begin.
  std::int64_t new_blocks(std::int64_t first, std::int64_t count) const {
    // Step s + 1 begins a block for the requests whose context after s steps fills its blocks
    // exactly: those with residue −s.
    std::int64_t blocks = block_size_.whole(count) * size();
    const std::int64_t last = block_size_.tokens() - 1;
    std::int64_t r = last - block_size_.rest(step_residue_ + first + last);
    for (std::int64_t i = block_size_.rest(count); i > 0; --i) {
      blocks += residues_[static_cast<std::size_t>(r)];
      r = r == 0 ? last : r - 1;
    }
    return blocks;
  }
  /// KV blocks that they hold after the allocation of `steps` more steps.
  std::int64_t held_blocks(std::int64_t steps) const;
  /// At most as many, from the sum of their contexts: a block has `tokens − 1` unused tokens at
  /// most.
  std::int64_t most_held_blocks(std::int64_t steps) const {
    return block_size_.whole(context_tokens_ + (steps + block_size_.tokens() - 1) * size_);
  }

  /// Of the requests that finish with the next step: their number, and the KV blocks that they
  /// would begin in the step after it.
  struct Finishing {
    std::int64_t requests = 0;
    std::int64_t blocks = 0;
  };
  Finishing finishing() const;

  /// From now on a member's `taken_blocks` are those that it holds after the allocation of `steps`
  /// more steps, or when it joins.
  void begin_late_taking(std::int64_t steps);
  /// Sum of the members' `taken_blocks`.
  std::int64_t taken_blocks() const { return taken_blocks_; }

  /// Adds a request that has emitted `emitted` ≥ 1 tokens, with the KV of all but the last in the
  /// cache.
  void join(sim::RequestId id, std::uint32_t entry, std::int64_t emitted, const Holding& holding,
            std::int64_t gaps_begin);
  /// Each request emits a token in each of `steps` ≤ `steps_to_finish` steps.
  void advance(std::int64_t steps) {
    context_tokens_ += steps * size_;
    step_ += steps;
    step_residue_ = block_size_.rest(step_residue_ + steps);
  }
  /// Whether a request has finished; if so, `pop_finished` takes the one that entered first.
  bool has_finished() const { return !empty() && members_[first_].finish_step == step_; }
  Member pop_finished();
  /// Removes all requests and returns them in order of entry.
  void take_all(std::vector<Member>& members);

  std::span<const Member> members() const { return std::span(members_).subspan(first_); }
  std::int64_t emitted(const Member& member) const {
    return requests_.target_output_tokens(member.id) - (member.finish_step - step_);
  }
  /// Tokens whose KV is in the cache.
  std::int64_t computed(const Member& member) const {
    return member.final_computed - (member.finish_step - step_);
  }

  /// The first of their `gaps_begin`. Precondition: not empty.
  std::int64_t gaps_begin() const;

  /// Adds the tokens that the requests of each group emit in `steps` steps.
  void count_tokens(std::span<std::int64_t> by_group, std::int64_t steps) const {
    for (std::size_t i = 0; i < whole_size_.size(); ++i) by_group[i] += steps * whole_size_[i];
  }
  /// Records `count` gaps of each counted request, per group. Precondition: groups are few.
  void record_gaps(workload::TokenGaps& gaps, sim::Time gap, std::int64_t count) const {
    const std::span<std::int64_t> row = gaps.row(gap);
    for (const std::size_t group : present_groups_) {
      const std::int64_t of_group = count * group_size_[group];
      row.empty() ? gaps.add(group, gap, of_group) : void(row[group] += of_group);
    }
  }

 private:
  std::size_t residue(std::int64_t computed) const {
    const std::int64_t r = block_size_.rest(computed) - step_residue_;
    return static_cast<std::size_t>(r < 0 ? r + block_size_.tokens() : r);
  }
  void count_in(const Member& member, std::int64_t sign);

  const workload::RequestTable& requests_;
  BlockSize block_size_;
  std::int64_t step_ = 0;          // number of steps so far
  std::int64_t step_residue_ = 0;  // the same modulo the block size
  // Sorted by (finish_step, entry); those before first_ have left. A request that joins usually
  // finishes among the last, so an insertion moves little.
  std::vector<Member> members_;
  std::size_t first_ = 0;
  std::int64_t size_ = 0;
  std::int64_t context_tokens_ = 0;
  std::int64_t taken_blocks_ = 0;
  // residues_[r]: the requests with (computed − step) mod block size = r, which is constant.
  std::vector<std::int32_t> residues_;
  std::vector<std::int64_t> group_size_;     // empty if there are many groups
  std::vector<std::size_t> present_groups_;  // groups with a nonzero size
  std::vector<std::int64_t> whole_size_;  // of groups, including requests that are not counted in
                                          // statistics; only with `counts_tokens`
};

}  // namespace spillway::instance
