#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "signals/prefix_index_config.h"
#include "sim/flat_map.h"
#include "sim/ids.h"
#include "sim/linked_list.h"
#include "workload/request_table.h"

namespace spillway::signals {

/// Approximate prefix index: which beginnings of a prompt were sent to which rank of an instance,
/// each with an LRU memory of `capacity_blocks`.
///
/// A block is the end of a beginning, so blocks of one shared segment are always sent together and
/// in order. They are kept as one run, of which the first blocks are forgotten first. Blocks that
/// no other prompt shares only take room.
class PrefixIndex {
 public:
  /// `ranks`: how many each instance has.
  PrefixIndex(const PrefixIndexConfig& config, const workload::RequestTable& requests,
              std::span<const std::size_t> ranks);

  std::int64_t block_size_tokens() const { return config_.block_size_tokens; }
  /// Full blocks of the request's prompt.
  std::int64_t prompt_blocks(sim::RequestId id) const {
    return requests_.input_tokens(id) / config_.block_size_tokens;
  }
  /// How many of them, from the first on, were sent to the rank and are remembered.
  std::int64_t matched_blocks(sim::RequestId id, std::size_t instance, std::size_t rank);
  /// The most over the ranks of the instance.
  std::int64_t matched_blocks(sim::RequestId id, std::size_t instance);
  /// The request goes there.
  void sent(sim::RequestId id, std::size_t instance, std::size_t rank);

 private:
  /// The blocks that end within one shared segment.
  struct Stretch {
    std::uint64_t key = 0;
    std::int64_t blocks = 0;
  };
  struct Run {
    std::uint64_t key = 0;    // 0: blocks that nobody shares
    std::int64_t blocks = 0;  // remembered: the last ones of …
    std::int64_t whole = 0;
  };
  using Runs = sim::LinkedList<Run>;
  /// What was sent to one rank.
  struct Memory {
    Runs runs;  // the oldest first
    sim::FlatMap by_key;
    std::int64_t blocks = 0;

    void remember(std::uint64_t key, std::int64_t blocks);
    void forget_oldest(std::int64_t blocks);
  };

  void load_prompt(sim::RequestId id);

  PrefixIndexConfig config_;
  const workload::RequestTable& requests_;
  std::vector<std::vector<Memory>> memories_;  // by instance and rank
  // The prompt looked at last.
  std::optional<std::uint32_t> row_;
  std::vector<Stretch> stretches_;
};

}  // namespace spillway::signals
