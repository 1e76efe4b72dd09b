// KV memory: the map and the free list against plain ones, and the invariants of the memory: every
// block is free or held, and blocks released first are taken first.
#include "instance/kv_cache/kv_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check.h"
#include "instance/kv_cache/free_list.h"
#include "requests_builder.h"
#include "sim/flat_map.h"
#include "sim/mix.h"
#include "sim/rng.h"
#include "workload/request_table.h"
#include "workload/requests.h"

using spillway::instance::Allocation;
using spillway::instance::EqualBlocks;
using spillway::instance::FreeList;
using spillway::instance::Holding;
using spillway::instance::KvCache;
using spillway::instance::KvMemory;
using spillway::sim::Draws;
using spillway::sim::FlatMap;
using spillway::sim::mix;
using spillway::sim::RequestId;
using spillway::sim::Stream;
using spillway::sim::Time;
using spillway::workload::Requests;
using spillway::workload::RequestTable;
using spillway::workload::Segment;

namespace {

// --- FlatMap
// --------------------------------------------------------------------------------------

void map_equals_the_standard_one() {
  for (std::uint64_t round = 0; round < 300; ++round) {
    Draws draws(round, Stream::router, 0);
    FlatMap map;
    std::unordered_map<std::uint64_t, std::int32_t> reference;
    const std::uint64_t names = 1 + draws.below(round % 3 == 0 ? 20 : 400);
    // Keys with few distinct last bits share their homes, so long clusters form, also around the
    // end of the table.
    const bool is_crowded = draws.below(2) == 0;
    const auto key_of = [&](std::uint64_t name) {
      const std::uint64_t key = mix(name + 1);
      return is_crowded ? (key & ~std::uint64_t{63}) | (60 + (key & 3)) : key;
    };
    for (int i = 0; i < 1500; ++i) {
      const std::uint64_t key = key_of(draws.below(names));
      const std::uint64_t action = draws.below(5);
      if (action < 2) {
        const auto value = static_cast<std::int32_t>(draws.below(1000));
        map.set(key, value);
        reference[key] = value;
      } else if (action < 4) {
        map.erase(key);
        reference.erase(key);
      }
      const auto found = reference.find(key);
      check(map.find(key) == (found == reference.end() ? FlatMap::kNone : found->second),
            "the value of a key");
      if (i % 100 > 0) continue;
      for (std::uint64_t name = 0; name < names; ++name) {
        const auto entry = reference.find(key_of(name));
        check(map.find(key_of(name)) == (entry == reference.end() ? FlatMap::kNone : entry->second),
              "the value of any key");
      }
    }
  }
}

// --- FreeList
// -------------------------------------------------------------------------------------

/// Block by block: an identity is a pair of name and position.
class PlainFreeList {
 public:
  using Identity = std::pair<std::uint64_t, std::int64_t>;
  struct Block {
    std::optional<Identity> identity;  // unset: blank
    int references = 0;
  };

  PlainFreeList(std::int64_t blank, Allocation allocation, EqualBlocks equal)
      : allocation_(allocation), equal_(equal) {
    append_blank(blank);
  }

  void take(std::int64_t count) {
    for (; count > 0; --count) {
      forget(free_.front());
      free_.erase(free_.begin());
    }
  }
  void append_blank(std::int64_t count) {
    for (; count > 0; --count) free_.push_back(make(std::nullopt, 0));
  }
  void prepend_blank(std::int64_t count) {
    for (; count > 0; --count) free_.insert(free_.begin(), make(std::nullopt, 0));
  }
  void append(std::uint64_t name, std::int64_t first, std::int64_t count) {
    for (std::int64_t block = first + count - 1; block >= first; --block) {
      free_.push_back(enroll({name, block}, 0));
    }
  }
  int add(const Identity& identity) { return enroll(identity, 1); }
  bool reference(int block) {
    if (blocks_[block].references++ > 0) return false;
    std::erase(free_, block);
    return true;
  }
  bool release(int block) {
    if (--blocks_[block].references > 0) return false;
    free_.push_back(block);
    return true;
  }

  /// The registered blocks from the first one of the name, up to `end` or a gap.
  std::vector<int> walk(std::uint64_t name, std::int64_t end) const {
    std::vector<int> found;
    for (std::int64_t block = 0; block < end; ++block) {
      const auto entry = registered_.find({name, block});
      if (entry == registered_.end()) break;
      found.push_back(entry->second);
    }
    return found;
  }
  std::int64_t size() const { return std::ssize(free_); }
  std::int64_t num_registered() const { return std::ssize(registered_); }
  std::int64_t blank_at_head() const {
    std::int64_t count = 0;
    for (const int block : free_) {
      if (blocks_.at(block).identity) break;
      ++count;
    }
    return count;
  }
  const Block& at(int block) const { return blocks_.at(block); }

 private:
  int make(std::optional<Identity> identity, int references) {
    blocks_[next_] = {identity, references};
    return next_++;
  }
  int enroll(const Identity& identity, int references) {
    const int block = make(identity, references);
    if (equal_ == EqualBlocks::first && registered_.contains(identity)) {
      copies_[identity].push_back(block);
    } else {
      registered_[identity] = block;
    }
    return block;
  }
  void forget(int block) {
    if (!blocks_[block].identity) return;
    const auto found = registered_.find(*blocks_[block].identity);
    if (equal_ == EqualBlocks::first) {
      std::vector<int>& copies = copies_[*blocks_[block].identity];
      if (found->second != block) {
        std::erase(copies, block);
      } else if (copies.empty()) {
        registered_.erase(found);
      } else {
        found->second = copies.front();
        copies.erase(copies.begin());
      }
      return;
    }
    if (found == registered_.end()) return;
    if (allocation_ == Allocation::roll_back || found->second == block) registered_.erase(found);
  }

  Allocation allocation_;
  EqualBlocks equal_;
  std::map<Identity, std::vector<int>> copies_;  // in order of registration
  std::map<int, Block> blocks_;
  std::vector<int> free_;
  std::map<Identity, int> registered_;
  int next_ = 0;
};

/// What a request holds of one name's blocks, from the first one on.
struct HeldStretches {
  std::uint64_t name = 0;
  std::vector<FreeList::Stretch> stretches;
  std::vector<int> blocks;
};

void check_free_list(Allocation allocation, EqualBlocks equal) {
  std::int64_t replaced = 0;
  std::int64_t revived = 0;
  std::int64_t evicted = 0;
  std::int64_t partial = 0;
  std::int64_t extended = 0;
  for (std::uint64_t round = 0; round < 400; ++round) {
    Draws draws(round, Stream::router, 1);
    const auto total = static_cast<std::int64_t>(1 + draws.below(60));
    const std::uint64_t names = 1 + draws.below(4);
    const auto longest = static_cast<std::int64_t>(1 + draws.below(12));
    FreeList list(total, allocation, equal);
    PlainFreeList plain(total, allocation, equal);
    std::int64_t blank_held = 0;
    std::vector<HeldStretches> holders;

    for (int i = 0; i < 600; ++i) {
      const std::uint64_t name = draws.below(names);
      const std::uint64_t action = draws.below(8);
      const auto up_to = [&](std::int64_t most) {
        return static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(most) + 1));
      };
      if (action < 2) {
        const std::int64_t count = up_to(std::min<std::int64_t>(plain.size(), 5));
        const std::int64_t registered = plain.num_registered();
        list.take(count);
        plain.take(count);
        evicted += registered - plain.num_registered();
        blank_held += count;
      } else if (action == 2) {
        const std::int64_t count = up_to(std::min<std::int64_t>(blank_held, 4));
        if (draws.below(2) == 0) {
          list.append_blank(count);
          plain.append_blank(count);
        } else {
          list.prepend_blank(count);
          plain.prepend_blank(count);
        }
        blank_held -= count;
      } else if (action == 3 && blank_held > 0) {
        const std::int64_t first = up_to(longest - 1);
        const std::int64_t count = 1 + up_to(std::min(blank_held, longest - first) - 1);
        const std::int64_t registered = plain.num_registered();
        list.append(mix(1 + name), first, count);
        plain.append(name, first, count);
        replaced += registered + count - plain.num_registered();
        blank_held -= count;
      } else if (action == 4) {
        HeldStretches holder{.name = name};
        const std::int64_t end = up_to(longest);
        holder.blocks = plain.walk(name, end);
        const std::int64_t found = list.walk(
            mix(1 + name), 0, end,
            [&](const FreeList::Stretch& stretch) { holder.stretches.push_back(stretch); });
        check(found == std::ssize(holder.blocks), "what can be found");
        partial += found == end && std::ssize(plain.walk(name, longest)) > end && end > 0;
        std::int64_t left = 0;
        std::size_t at = 0;
        for (const FreeList::Stretch& stretch : holder.stretches) {
          for (std::int64_t k = 0; k < stretch.blocks; ++k, ++at) {
            const bool is_free = plain.at(holder.blocks[at]).references == 0;
            check(list.is_free(stretch.run) == is_free, "whether it is free");
            revived += is_free ? 1 : 0;
          }
          left += list.reference(stretch);
        }
        for (const int block : holder.blocks) left -= plain.reference(block) ? 1 : 0;
        check(left == 0, "how many leave the list");
        holders.push_back(holder);
      } else if (action == 5 && blank_held > 0 && !holders.empty()) {
        HeldStretches& holder = holders[draws.below(holders.size())];
        const std::int64_t first = std::ssize(holder.blocks);
        if (first == longest) continue;
        const std::int64_t count = 1 + up_to(std::min(blank_held, longest - first) - 1);
        const std::uint64_t key = mix(1 + holder.name);
        const std::int64_t registered = plain.num_registered();
        if (!holder.stretches.empty() && list.extend(holder.stretches.back(), key, count)) {
          ++extended;
        } else {
          holder.stretches.push_back(list.add(key, first, count));
        }
        for (std::int64_t block = first; block < first + count; ++block) {
          holder.blocks.push_back(plain.add({holder.name, block}));
        }
        replaced += registered + count - plain.num_registered();
        blank_held -= count;
      } else if (action > 5 && !holders.empty()) {
        std::swap(holders[draws.below(holders.size())], holders.back());
        std::int64_t joined = 0;
        for (const FreeList::Stretch& stretch : std::views::reverse(holders.back().stretches)) {
          joined += list.release(stretch);
        }
        for (const int block : std::views::reverse(holders.back().blocks)) {
          joined -= plain.release(block) ? 1 : 0;
        }
        check(joined == 0, "how many join the list");
        holders.pop_back();
      }
      for (std::uint64_t other = 0; other < names; ++other) {
        const std::int64_t found =
            list.walk(mix(1 + other), 0, longest, [](const FreeList::Stretch&) {});
        check(found == std::ssize(plain.walk(other, longest)), "what can be found");
      }
      std::vector<int> in_use;
      for (const HeldStretches& holder : holders) {
        in_use.insert(in_use.end(), holder.blocks.begin(), holder.blocks.end());
      }
      std::sort(in_use.begin(), in_use.end());
      const auto distinct = std::unique(in_use.begin(), in_use.end()) - in_use.begin();
      check(list.num_in_use() == distinct, "blocks in use");
      check(plain.size() + blank_held + distinct == total, "no block is lost");
      // Adjacent runs of blank blocks are not always merged.
      check(list.blank_at_head() <= plain.blank_at_head(), "blank blocks at the head");
      check((list.blank_at_head() > 0) == (plain.blank_at_head() > 0), "whether the head is blank");
    }
  }
  check(replaced > 1000 && revived > 1000 && evicted > 1000, "the use shows all cases");
  check(partial > 1000 && extended > 1000, "and runs are cut and extended");
}

// --- KvMemory
// -------------------------------------------------------------------------------------

struct Prompt {
  std::uint64_t group = 0;  // 0: none
  std::uint32_t shared = 0;
  std::int32_t tokens = 0;
  std::int32_t output = 1;
};

std::shared_ptr<const Requests> requests_of(const std::vector<Prompt>& prompts) {
  RequestsBuilder builder;
  for (const Prompt& prompt : prompts) {
    std::vector<Segment> segments;
    if (prompt.group > 0) segments.push_back({mix(prompt.group), prompt.shared});
    builder.add(prompt.tokens, prompt.output, segments);
  }
  return std::move(builder).build();
}

/// A request in the memory.
struct Held {
  RequestId id;
  Holding holding;
  std::int64_t computed = 0;
};

void check_blocks(Allocation allocation, bool prefix_caching) {
  std::int64_t hits = 0;
  std::int64_t refused = 0;
  std::int64_t found_again = 0;
  for (std::uint64_t round = 0; round < 150; ++round) {
    Draws draws(round, Stream::router, 2);
    const auto size = static_cast<std::int64_t>(1 + draws.below(20));
    const auto total = static_cast<std::int64_t>(8 + draws.below(30));
    std::vector<std::uint32_t> lengths(4);
    for (auto& length : lengths) length = static_cast<std::uint32_t>(1 + draws.below(80));
    std::vector<Prompt> prompts(60);
    for (Prompt& prompt : prompts) {
      prompt.group = draws.below(4);
      prompt.shared = prompt.group > 0 ? lengths[prompt.group] : 0;
      prompt.tokens = static_cast<std::int32_t>(prompt.shared + draws.below(60));
      if (prompt.tokens == 0) prompt.tokens = 1;
      prompt.output = static_cast<std::int32_t>(draws.below(40));
    }
    const RequestTable table(requests_of(prompts), {}, {}, Time{0});
    KvMemory memory({.prefix_caching = prefix_caching,
                     .allocation = allocation,
                     .stores_last_token = draws.below(2) == 0},
                    {}, false, total, size, table);
    std::vector<Held> inside;
    std::vector<std::pair<RequestId, std::int64_t>> outside;  // known tokens; preempted: returns
    std::vector<bool> was_inside(prompts.size(), false);
    for (std::size_t row = 0; row < prompts.size(); ++row) {
      outside.emplace_back(RequestId{row}, prompts[row].tokens);
    }
    for (int i = 0; i < 500; ++i) {
      const std::uint64_t action = draws.below(10);
      if (action < 4 && !outside.empty()) {
        std::swap(outside[draws.below(outside.size())], outside.back());
        const auto [id, known] = outside.back();
        const std::int64_t free = memory.free();
        const std::int64_t lookups = memory.counts().lookups;
        const std::int64_t found = memory.find(id, known, was_inside[id.index()]);
        check(found % size == 0 && found <= known, "whole blocks are found");
        check(allocation == Allocation::roll_back || found < known, "one token is left");
        check(prefix_caching || found == 0, "nothing is found without caching");
        check(memory.free() == free, "looking changes nothing");
        found_again += was_inside[id.index()] && found > 0 ? 1 : 0;
        const std::int64_t rest = known - found;
        const std::int64_t tokens =
            rest == 0
                ? 0
                : 1 + static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(rest)));
        Held held{id, {}, found + tokens};
        if (memory.admit(id, held.holding, tokens, held.computed, 0)) {
          check(held.holding.blocks == memory.blocks_for(found + tokens), "blocks for all tokens");
          check(memory.counts().lookups == lookups + prompts[id.index()].tokens / size,
                "looked up");
          inside.push_back(held);
          was_inside[id.index()] = true;
          outside.pop_back();
        } else {
          check(memory.free() == free && memory.counts().lookups == lookups, "a refusal is undone");
          ++refused;
        }
      } else if (action < 7 && !inside.empty()) {
        Held& held = inside[draws.below(inside.size())];
        const std::int64_t free = memory.free();
        const std::int64_t blocks = held.holding.blocks;
        const auto more = static_cast<std::int64_t>(1 + draws.below(20));
        if (memory.extend(held.id, held.holding, held.computed + more, held.computed + more)) {
          held.computed += more;
          check(held.holding.blocks == memory.blocks_for(held.computed), "blocks for all tokens");
        } else {
          check(memory.free() == free && held.holding.blocks == blocks,
                "a refusal changes nothing");
        }
      } else if (!inside.empty()) {
        std::swap(inside[draws.below(inside.size())], inside.back());
        Held held = inside.back();
        inside.pop_back();
        if (action < 9) {
          memory.leave(held.holding, held.computed, held.computed,
                       prompts[held.id.index()].output > 0);
        } else {
          memory.preempt(held.id, held.holding, held.computed);
          check(held.holding.blocks == 0, "it holds nothing any more");
          outside.emplace_back(
              held.id, std::max<std::int64_t>(held.computed, prompts[held.id.index()].tokens));
        }
      }
      std::int64_t held = memory.num_named_in_use();
      for (const Held& request : inside) held += memory.own_blocks(request.holding);
      check(memory.free() + held == total, "every block is free or held");
      check(memory.free() >= 0 && memory.takeable_without_eviction() <= memory.free(),
            "what is free");
    }
    for (const Held& request : inside) {
      memory.leave(request.holding, request.computed, request.computed, true);
    }
    check(memory.free() == total && memory.num_named_in_use() == 0, "all of it is free at the end");
    hits += memory.counts().hits;
  }
  check(refused > 500, "memory was short");
  check(!prefix_caching || (hits > 1000 && found_again > 50), "blocks were used again");
}

/// Requests of groups a and b with 4 shared blocks of 10 tokens each, and others with 1 to 8 blocks
/// of their own.
class Scene {
 public:
  explicit Scene(std::int64_t num_blocks, Allocation allocation = Allocation::check_then_act)
      : table_(requests_of(prompts()), {}, {}, Time{0}),
        memory_({.allocation = allocation}, {}, false, num_blocks, 10, table_) {}

  static constexpr std::size_t kA = 0, kB = 1, kOther = 2;
  KvMemory& memory() { return memory_; }
  std::int64_t found(std::size_t group) const { return memory_.count_found(RequestId{group}); }

  Holding enter(std::size_t row) {
    const RequestId id{row};
    const std::int64_t tokens = table_.input_tokens(id);
    const std::int64_t found = memory_.find(id, tokens, false);
    Holding holding;
    check(memory_.admit(id, holding, tokens - found, tokens, 0), "there is room");
    return holding;
  }
  void leave(std::size_t row, const Holding& holding) {
    const std::int64_t tokens = table_.input_tokens(RequestId{row});
    memory_.leave(holding, tokens, tokens, true);
  }

 private:
  static std::vector<Prompt> prompts() {
    // One token beyond the shared blocks, so that all of them can be reused.
    std::vector<Prompt> prompts{{1, 40, 41}, {2, 40, 41}};
    for (std::int32_t blocks = 1; blocks <= 8; ++blocks) prompts.push_back({0, 0, 10 * blocks});
    return prompts;
  }
  RequestTable table_;
  KvMemory memory_;
};

void what_was_released_first_is_taken_first() {
  Scene scene(10);
  const Holding a = scene.enter(Scene::kA);
  const Holding b = scene.enter(Scene::kB);
  check(scene.memory().free() == 0, "five blocks each");
  scene.leave(Scene::kA, a);
  scene.leave(Scene::kB, b);
  check(scene.memory().free() == 10, "all are free");
  check(scene.found(Scene::kA) == 4 && scene.found(Scene::kB) == 4, "and can still be found");
  // In the list: a's own block, a's shared ones from the last to the first, then b's.
  const std::pair<std::int64_t, std::int64_t> left[] = {{4, 4}, {3, 4}, {2, 4}, {1, 4}, {0, 4},
                                                        {0, 4}, {0, 3}, {0, 2}, {0, 1}, {0, 0}};
  for (const auto& [of_a, of_b] : left) {
    (void)scene.enter(Scene::kOther);
    check(scene.found(Scene::kA) == of_a && scene.found(Scene::kB) == of_b, "the oldest goes");
  }
  check(scene.memory().counts().hits == 0 && scene.memory().counts().misses == 20, "counts");
}

void what_is_used_again_becomes_the_newest() {
  Scene scene(10);
  const Holding a = scene.enter(Scene::kA);
  scene.leave(Scene::kA, a);
  const Holding b = scene.enter(Scene::kB);
  scene.leave(Scene::kB, b);
  const Holding again = scene.enter(Scene::kA);
  check(scene.memory().counts().hits == 4 && scene.memory().counts().misses == 11,
        "four blocks are used again");
  check(scene.memory().num_named_in_use() == 4, "and held");
  scene.leave(Scene::kA, again);
  (void)scene.enter(Scene::kOther + 5);  // six blocks: both own ones and b's
  check(scene.found(Scene::kA) == 4 && scene.found(Scene::kB) == 0,
        "the group that returned stays");
}

void shared_blocks_are_held_once() {
  for (const Allocation allocation : {Allocation::check_then_act, Allocation::roll_back}) {
    Scene scene(10, allocation);
    const Holding first = scene.enter(Scene::kA);
    const Holding second = scene.enter(Scene::kA);
    check(scene.memory().free() == 4, "four shared and two own blocks are held");
    scene.leave(Scene::kA, first);
    check(scene.memory().free() == 5, "the shared ones are still held");
    scene.leave(Scene::kA, second);
    check(scene.memory().free() == 10, "no request holds them any more");
  }
}

void a_preempted_request_finds_what_was_not_taken() {
  Scene scene(10);
  const std::size_t row = Scene::kOther + 5;  // six blocks
  const RequestId id{row};
  Holding holding = scene.enter(row);
  scene.memory().preempt(id, holding, 60);
  check(scene.memory().free() == 10 && scene.memory().find(id, 61, true) == 60, "all of it");
  check(scene.memory().find(id, 60, true) == 50, "at least one token is computed anew");
  check(scene.memory().find(id, 61, false) == 0, "no other request has these tokens");
  // Four blank blocks precede its own, of which the last are taken first.
  const std::int64_t left[] = {60, 60, 60, 60, 50, 40};
  for (const std::int64_t tokens : left) {
    (void)scene.enter(Scene::kOther);
    check(scene.memory().find(id, 61, true) == tokens, "the oldest goes");
  }
}

void free_list_equals_the_plain_one() {
  check_free_list(Allocation::check_then_act, EqualBlocks::last);
  check_free_list(Allocation::check_then_act, EqualBlocks::first);
  check_free_list(Allocation::roll_back, EqualBlocks::last);
}

void every_block_is_free_or_held() {
  for (const Allocation allocation : {Allocation::check_then_act, Allocation::roll_back}) {
    for (const bool prefix_caching : {true, false}) check_blocks(allocation, prefix_caching);
  }
}

}  // namespace

CASES(map_equals_the_standard_one, free_list_equals_the_plain_one, every_block_is_free_or_held,
      what_was_released_first_is_taken_first, what_is_used_again_becomes_the_newest,
      shared_blocks_are_held_once, a_preempted_request_finds_what_was_not_taken);
