#include "instance/kv_cache/kv_cache.h"

#include <algorithm>
#include <ranges>

#include "sim/mix.h"
#include "workload/prompts.h"

namespace spillway::instance {

namespace {

// Key of a request's own blocks; the constant separates it from those of shared beginnings.
std::uint64_t own_key(std::uint32_t row) { return sim::mix(0x6F776E20626C6F63u + row); }

// Number of leading blocks in the shared segments that are cached, at most `limit`; calls `f` with
// each stretch of them.
template <class F>
std::int64_t walk_found(const FreeList& list, workload::SharedBeginnings beginnings,
                        const KvMemory& memory, std::int64_t limit, const F& f) {
  std::int64_t found = 0;
  while (found < limit && beginnings.advance()) {
    const std::int64_t end = std::min(limit, memory.findable_blocks(beginnings.tokens()));
    found += list.walk(beginnings.key(), found, end, f);
    if (found < end) break;
  }
  return found;
}

}  // namespace

KvMemory::KvMemory(const KvCache& config, const EngineRules& rules, bool has_eagle,
                   std::int64_t num_blocks, std::int64_t block_size_tokens,
                   const workload::RequestTable& requests)
    : config_(config),
      order_(rules.free_blocks),
      next_(has_eagle && rules.eagle_blocks == EagleBlocks::next_token ? 1 : 0),
      drops_last_(has_eagle && rules.eagle_blocks == EagleBlocks::drop_last),
      block_size_(block_size_tokens),
      total_(num_blocks),
      free_(num_blocks),
      watermark_blocks_(static_cast<std::int64_t>(
          config.watermark * static_cast<double>(total_ + (rules.null_block ? 1 : 0)))),
      requests_(requests),
      list_(0, config.allocation, rules.equal_blocks) {
  if (!config.prefix_caching || !requests.shares_segments()) return;
  list_blocks();
  fill(requests.warm_parts());
}

void KvMemory::restart(const KvCounts& counts) {
  if (is_listed_) list_ = FreeList(total_, config_.allocation, list_.equal());
  counts_ = counts;
}

void KvMemory::forget_cached() {
  if (!is_listed_) return;
  list_.take(free_);
  list_.append_blank(free_);
}

void KvMemory::list_blocks() {
  list_.append_blank(free_);
  is_listed_ = true;
}

// As if the beginnings had been computed before the run, those that its prompts have first last.
void KvMemory::fill(std::span<const workload::CachedPart> parts) {
  struct Run {
    std::uint64_t key = 0;
    std::int64_t first = 0;
    std::int64_t blocks = 0;
  };
  std::vector<Run> runs;
  std::int64_t room = total_;
  for (const workload::CachedPart& part : parts) {
    const std::int64_t first = findable_blocks(part.from_tokens);
    const std::int64_t blocks = std::min(room, findable_blocks(part.to_tokens) - first);
    runs.push_back({part.key, first, blocks});
    room -= blocks;
    if (room == 0) break;
  }
  list_.take(total_ - room);
  for (const Run& run : std::views::reverse(runs)) {
    if (run.blocks > 0) list_.append(run.key, run.first, run.blocks);
  }
}

void KvMemory::free_blank(std::int64_t blocks) {
  order_ == FreeBlocks::blank_first ? list_.prepend_blank(blocks) : list_.append_blank(blocks);
}

workload::Segment KvMemory::repeated_answer_of(sim::RequestId id) const {
  const std::uint64_t content = requests_.answer(id);
  if (content == 0 ||
      workload::shared_tokens(requests_.segments(id)) != requests_.input_tokens(id)) {
    return {};
  }
  return {content, static_cast<std::uint32_t>(requests_.target_output_tokens(id))};
}

std::int64_t KvMemory::own_blocks(const Holding& holding) const {
  return holding.blocks - prefixes_.count(holding);
}

std::int64_t KvMemory::find(sim::RequestId id, std::int64_t known, bool returns) {
  found_.clear();
  found_blocks_ = 0;
  returns_ = returns;
  prompt_blocks_ = block_size_.whole(requests_.input_tokens(id));
  if (!is_listed_) return 0;
  const std::int64_t limit =
      config_.allocation == Allocation::roll_back ? prompt_blocks_ : block_size_.whole(known - 1);
  const auto segments = requests_.segments(id);
  const workload::Segment answer = answer_of(id);
  const auto keep = [&](const FreeList::Stretch& stretch) { found_.push_back(stretch); };
  found_blocks_ = walk_found(list_, {segments, answer}, *this, limit, keep);
  if (returns &&
      found_blocks_ ==
          std::min(limit, findable_blocks(workload::shared_tokens(segments) + answer.tokens))) {
    found_blocks_ += list_.walk(own_key(requests_.row(id)), found_blocks_, limit, keep);
  }
  if (drops_last_ && found_blocks_ > 0) {
    --found_blocks_;
    if (--found_.back().blocks == 0) found_.pop_back();
  }
  return found_blocks_ * block_size_.tokens();
}

std::int64_t KvMemory::count_found(sim::RequestId id) const {
  if (!is_listed_) return 0;
  return walk_found(list_, workload::SharedBeginnings(requests_.segments(id)), *this,
                    block_size_.whole(requests_.input_tokens(id)), [](const FreeList::Stretch&) {});
}

bool KvMemory::admit(sim::RequestId id, Holding& holding, std::int64_t tokens, std::int64_t known,
                     std::int64_t spare_blocks) {
  const std::int64_t found = found_blocks_;
  const std::int64_t computed = found * block_size_.tokens();
  const std::int64_t missing = blocks_for(computed + tokens) - found;
  holding.returned = returns_;
  if (tokens == 0) {
    // The whole prompt is cached, but the request does not reference it.
    if (found > 0) prefixes_.of(holding).blocks = found;
    holding.blocks = found;
    counts_.lookups += prompt_blocks_;
    return true;
  }
  if (config_.allocation == Allocation::check_then_act) {
    std::int64_t still_free = 0;
    for (const FreeList::Stretch& stretch : found_)
      still_free += list_.is_free(stretch.run) ? stretch.blocks : 0;
    if (missing + still_free + spare_blocks > free_) return false;
  } else if (missing > free_) {
    return false;
  }
  for (const FreeList::Stretch& stretch : found_) free_ -= list_.reference(stretch);
  if (missing > free_) {
    for (const FreeList::Stretch& stretch : std::views::reverse(found_)) {
      free_ += list_.release(stretch);
    }
    return false;
  }
  counts_.hits += found;
  counts_.lookups += prompt_blocks_;
  if (found > 0) {
    PrefixBlocks::Prefix& prefix = prefixes_.of(holding);
    prefix.stretches.assign(found_.begin(), found_.end());
    prefix.blocks = found;
  }
  take(missing);
  holding.blocks = found + missing;
  if (is_listed_) {
    holding.to_register = blocks_to_register(id);
    register_full(id, holding, known);
  }
  return true;
}

// The blocks that others can share, and those that the request itself may look for again. Its
// unshared blocks get their identities when it is first preempted (`preempt`).
std::int64_t KvMemory::blocks_to_register(sim::RequestId id) const {
  if (config_.generated_tokens) {
    const workload::Segment answer = answer_of(id);
    if (answer.tokens > 0) {
      return block_size_.whole(std::int64_t{requests_.input_tokens(id)} + answer.tokens);
    }
  }
  return returns_ ? block_size_.whole(requests_.input_tokens(id))
                  : findable_blocks(workload::shared_tokens(requests_.segments(id)));
}

void KvMemory::register_full(sim::RequestId id, Holding& holding, std::int64_t tokens) {
  const std::int64_t full = std::min(findable_blocks(tokens), holding.to_register);
  std::int64_t block = prefixes_.count(holding);
  if (full == holding.to_register) holding.to_register = 0;
  if (full <= block) return;
  PrefixBlocks::Prefix& prefix = prefixes_.of(holding);
  const auto register_up_to = [&](std::int64_t end, std::uint64_t key) {
    if (block >= end) return;
    std::vector<FreeList::Stretch>& stretches = prefix.stretches;
    if (stretches.empty() || !list_.extend(stretches.back(), key, end - block)) {
      stretches.push_back(list_.add(key, block, end - block));
    }
    block = end;
  };
  workload::SharedBeginnings beginnings(requests_.segments(id), answer_of(id));
  while (block < full && beginnings.advance()) {
    register_up_to(std::min(full, findable_blocks(beginnings.tokens())), beginnings.key());
  }
  register_up_to(full, own_key(requests_.row(id)));
  prefix.blocks = full;
}

void KvMemory::release_registered(const Holding& holding) {
  if (holding.prefix == Holding::kNoPrefix) return;
  for (const FreeList::Stretch& stretch : std::views::reverse(prefixes_.stretches(holding))) {
    free_ += list_.release(stretch);
  }
  prefixes_.drop(holding);
}

void KvMemory::free_listed(const Holding& holding, std::int64_t known, std::int64_t own) {
  if (order_ == FreeBlocks::blank_first) {
    // Blocks that no request will look for have a content, too, if they are full.
    const std::int64_t blank =
        own - std::max<std::int64_t>(0, findable_blocks(known) - (holding.blocks - own));
    list_.prepend_blank(blank);
    own -= blank;
  }
  list_.append_blank(own);
  release_registered(holding);
}

void KvMemory::preempt(sim::RequestId id, Holding& holding, std::int64_t known) {
  const std::int64_t own = own_blocks(holding);
  if (!is_listed_ && config_.prefix_caching) list_blocks();
  free_ += own;
  if (is_listed_) {
    const std::int64_t full = findable_blocks(known);
    const std::int64_t first_own = prefixes_.count(holding);
    free_blank(holding.blocks - std::max(full, first_own));
    if (full > first_own) {
      list_.append(own_key(requests_.row(id)), first_own, full - first_own);
    }
    release_registered(holding);
  }
  holding = {};
}

}  // namespace spillway::instance
