// The prefix index, which keeps runs of blocks, against a plain LRU list of single blocks.
#include "signals/prefix_index.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "check.h"
#include "requests_builder.h"
#include "sim/mix.h"
#include "sim/rng.h"
#include "workload/request_table.h"
#include "workload/requests.h"

using spillway::signals::PrefixIndex;
using spillway::sim::Draws;
using spillway::sim::RequestId;
using spillway::sim::Stream;
using spillway::sim::Time;
using spillway::workload::Requests;
using spillway::workload::RequestTable;
using spillway::workload::Segment;

namespace {

/// The parts of a prompt.
struct Prompt {
  std::vector<Segment> segments;
  std::int32_t own_tokens = 0;

  std::int32_t tokens() const {
    std::int32_t sum = own_tokens;
    for (const Segment& segment : segments) sum += static_cast<std::int32_t>(segment.tokens);
    return sum;
  }
};

std::shared_ptr<const Requests> requests_of(const std::vector<Prompt>& prompts) {
  RequestsBuilder builder;
  for (const Prompt& prompt : prompts) builder.add(prompt.tokens(), 1, prompt.segments);
  return std::move(builder).build();
}

/// One remembered block, by the beginning that it ends.
struct Block {
  std::vector<std::uint64_t> beginning;  // contents and lengths of the segments up to its end
  std::int64_t own_of = -1;              // or the request whose unshared tokens it holds
  std::int64_t number = 0;

  friend bool operator==(const Block&, const Block&) = default;
};

std::vector<Block> blocks_of(const Prompt& prompt, std::int64_t row, std::int64_t size) {
  std::vector<Block> blocks;
  for (std::int64_t number = 0; number < prompt.tokens() / size; ++number) {
    Block block{{}, -1, number};
    std::int64_t covered = 0;
    for (const Segment& segment : prompt.segments) {
      if (covered >= (number + 1) * size) break;
      block.beginning.push_back(segment.content);
      block.beginning.push_back(segment.tokens);
      covered += segment.tokens;
    }
    if (covered < (number + 1) * size) block.own_of = row;
    blocks.push_back(block);
  }
  return blocks;
}

/// The blocks sent to one instance, the oldest first.
class PlainMemory {
 public:
  explicit PlainMemory(std::int64_t capacity) : capacity_(static_cast<std::size_t>(capacity)) {}

  std::int64_t matched(const std::vector<Block>& prompt) const {
    std::int64_t count = 0;
    for (const Block& block : prompt) {
      if (std::find(blocks_.begin(), blocks_.end(), block) == blocks_.end()) break;
      ++count;
    }
    return count;
  }
  void sent(const std::vector<Block>& prompt) {
    for (const Block& block : prompt) {
      std::erase(blocks_, block);
      blocks_.push_back(block);
      if (blocks_.size() > capacity_) blocks_.erase(blocks_.begin());
    }
  }

 private:
  std::size_t capacity_;
  std::vector<Block> blocks_;
};

std::uint64_t content(std::uint64_t name) { return spillway::sim::mix(name + 1); }

// Prompts of a few groups. Those of one group have segments in common, but not all of them.
std::vector<Prompt> random_prompts(Draws& draws, std::int64_t block_size) {
  const auto longest = static_cast<std::uint64_t>(4 * block_size);
  std::vector<std::vector<Segment>> groups(1 + draws.below(4));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::uint64_t s = 0; s < 1 + draws.below(4); ++s) {
      // Sometimes a content or a beginning of another group.
      const std::uint64_t name = draws.below(3) == 0 ? s : 100 * (g + 1) + s;
      groups[g].push_back({content(name), static_cast<std::uint32_t>(1 + draws.below(longest))});
    }
    if (g > 0 && draws.below(2) == 0) groups[g].front() = groups[g - 1].front();
  }
  std::vector<Prompt> prompts(20 + draws.below(40));
  for (Prompt& prompt : prompts) {
    if (draws.below(6) > 0) {
      prompt.segments = groups[draws.below(groups.size())];
      prompt.segments.resize(1 + draws.below(prompt.segments.size()));
    }
    prompt.own_tokens = static_cast<std::int32_t>(draws.below(longest));
    if (prompt.tokens() == 0) prompt.own_tokens = 1;
  }
  return prompts;
}

void random_use_equals_the_plain_memory() {
  std::int64_t whole = 0;
  std::int64_t partial = 0;
  std::int64_t forgotten = 0;
  for (std::uint64_t round = 0; round < 400; ++round) {
    Draws draws(round, Stream::router, 0);
    const auto size = static_cast<std::int64_t>(1 + draws.below(64));
    const std::vector<Prompt> prompts = random_prompts(draws, size);
    const std::int64_t capacities[] = {1, 2, 3, 7, 15, 40, 1000};
    const std::int64_t capacity = capacities[draws.below(std::size(capacities))];
    std::vector<std::size_t> ranks(1 + draws.below(3));
    for (std::size_t& number : ranks) number = 1 + draws.below(2);

    const RequestTable table(requests_of(prompts), {}, {}, Time{0});
    PrefixIndex index(capacity, size, table, ranks);
    std::vector<std::vector<PlainMemory>> plain;
    std::vector<std::vector<PlainMemory>> ample;
    for (const std::size_t number : ranks) {
      plain.emplace_back(number, PlainMemory(capacity));
      ample.emplace_back(number, PlainMemory(1'000'000));
    }

    for (std::size_t row = 0; row < prompts.size(); ++row) {
      const RequestId id{row};
      const auto blocks = blocks_of(prompts[row], static_cast<std::int64_t>(row), size);
      check(index.prompt(id).blocks == std::ssize(blocks), "full blocks of the prompt");
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        std::int64_t most = 0;
        for (std::size_t rank = 0; rank < ranks[i]; ++rank) {
          const std::int64_t expected = plain[i][rank].matched(blocks);
          check(index.matched_blocks(id, i, rank) == expected, "matched blocks");
          check(index.matched_blocks(id, i, rank) == expected, "asking changes nothing");
          const std::int64_t at_most = ample[i][rank].matched(blocks);
          whole += expected > 0 && expected == std::ssize(blocks) ? 1 : 0;
          partial += expected > 0 && expected < std::ssize(blocks) ? 1 : 0;
          forgotten += expected < at_most ? 1 : 0;
          most = std::max(most, expected);
        }
        check(index.matched_blocks(id, i) == most, "of an instance, those of its best rank");
      }
      const std::size_t chosen = draws.below(ranks.size());
      const std::size_t rank = draws.below(ranks[chosen]);
      // Another request may have been matched between the match and the sending.
      if (row > 0 && draws.below(2) == 0) {
        (void)index.matched_blocks(RequestId{draws.below(row)}, chosen);
      }
      index.sent(id, chosen, rank);
      plain[chosen][rank].sent(blocks);
      ample[chosen][rank].sent(blocks);
    }
  }
  check(whole > 100 && partial > 1000 && forgotten > 1000, "the prompts show all cases");
}

constexpr std::array<std::size_t, 1> kOneRank{1};

constexpr std::int64_t kBlock_tokens = 16;

void ranks_have_memories_of_their_own() {
  const std::vector<Prompt> prompts(2, Prompt{{{content(1), 160}}, 0});
  const RequestTable table(requests_of(prompts), {}, {}, Time{0});
  const std::vector<std::size_t> ranks{1, 2};
  PrefixIndex index(100, kBlock_tokens, table, ranks);
  index.sent(RequestId{std::size_t{0}}, 1, 1);
  const RequestId same{std::size_t{1}};
  check(index.matched_blocks(same, 0) == 0, "nothing was sent there");
  check(index.matched_blocks(same, 1, 0) == 0, "nor to the other rank");
  check(index.matched_blocks(same, 1, 1) == 10, "the whole prompt was");
  check(index.matched_blocks(same, 1) == 10, "the instance has it at one of its ranks");
}

// A prompt that does not fit displaces its own beginning, without which the rest cannot match.
void a_prompt_beyond_the_capacity_is_not_found() {
  const std::vector<Prompt> prompts(2, Prompt{{{content(1), 160}}, 0});
  const RequestTable table(requests_of(prompts), {}, {}, Time{0});
  for (const std::int64_t capacity : {9, 10}) {
    PrefixIndex index(capacity, kBlock_tokens, table, kOneRank);
    index.sent(RequestId{std::size_t{0}}, 0, 0);
    check(index.matched_blocks(RequestId{std::size_t{1}}, 0) == (capacity == 10 ? 10 : 0),
          "found only if all of it is there");
    check(index.has_forgotten() == (capacity == 9), "what was displaced is known");
  }
}

void own_blocks_push_out_shared_ones() {
  std::vector<Prompt> prompts(3, Prompt{{{content(1), 32}}, 0});
  prompts[1] = Prompt{{}, 16 * 8};
  const RequestTable table(requests_of(prompts), {}, {}, Time{0});
  for (const std::int64_t capacity : {9, 10}) {
    PrefixIndex index(capacity, kBlock_tokens, table, kOneRank);
    index.sent(RequestId{std::size_t{0}}, 0, 0);
    index.sent(RequestId{std::size_t{1}}, 0, 0);
    check(index.matched_blocks(RequestId{std::size_t{2}}, 0) == (capacity == 10 ? 2 : 0),
          "the oldest go first");
  }
}

}  // namespace

CASES(random_use_equals_the_plain_memory, ranks_have_memories_of_their_own,
      a_prompt_beyond_the_capacity_is_not_found, own_blocks_push_out_shared_ones);
