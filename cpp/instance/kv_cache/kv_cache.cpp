#include "instance/kv_cache/kv_cache.h"

#include <algorithm>
#include <ranges>

#include "sim/mix.h"
#include "workload/prompts.h"

namespace spillway::instance {

namespace {

std::uint64_t shared_identity(std::uint64_t beginning, std::int64_t block) {
  return sim::mix(beginning + static_cast<std::uint64_t>(block));
}

// Identities of a request's own blocks; the constant separates them from those of shared
// beginnings.
std::uint64_t own_identity(std::uint32_t row, std::int64_t block) {
  return sim::mix(sim::mix(0x6F776E20626C6F63u + row) + static_cast<std::uint64_t>(block));
}

// Calls `f(block, identity)` for the first `limit` blocks as far as they end within the shared
// segments, until it returns false.
template <class F>
void for_shared_blocks(std::span<const workload::Segment> segments, const BlockSize& size,
                       std::int64_t first, std::int64_t limit, const F& f) {
  workload::SharedBeginnings beginnings(segments);
  std::int64_t block = first;
  while (block < limit && beginnings.advance()) {
    const std::int64_t end = std::min(limit, size.whole(beginnings.tokens()));
    for (; block < end; ++block) {
      if (!f(block, shared_identity(beginnings.key(), block))) return;
    }
  }
}

// Number of leading blocks in the shared segments that are cached, at most `limit`; calls `f` with
// each.
template <class F>
std::int64_t walk_found(const FreeList& list, std::span<const workload::Segment> segments,
                        const BlockSize& size, std::int64_t limit, const F& f) {
  std::int64_t found = 0;
  for_shared_blocks(segments, size, 0, limit, [&](std::int64_t, std::uint64_t identity) {
    const FreeList::Node node = list.find(identity);
    if (node == FreeList::kNone) return false;
    f(node);
    ++found;
    return true;
  });
  return found;
}

}  // namespace

KvMemory::KvMemory(const KvCache& config, std::int64_t num_blocks, std::int64_t block_size_tokens,
                   const workload::RequestTable& requests)
    : config_(config),
      block_size_(block_size_tokens),
      total_(num_blocks),
      free_(num_blocks),
      requests_(requests),
      list_(0, config.allocation) {
  if (config.prefix_caching && requests.shares_segments()) list_blocks();
}

void KvMemory::list_blocks() {
  list_.append_blank(free_);
  is_listed_ = true;
}

std::int64_t KvMemory::own_blocks(const Holding& holding) const {
  return holding.blocks - prefixes_.count(holding);
}

std::int64_t KvMemory::find(sim::RequestId id, std::int64_t known, bool returns) {
  found_.clear();
  returns_ = returns;
  prompt_blocks_ = block_size_.whole(requests_.input_tokens(id));
  if (!is_listed_) return 0;
  const std::int64_t limit =
      config_.allocation == Allocation::roll_back ? prompt_blocks_ : block_size_.whole(known - 1);
  const auto segments = requests_.segments(id);
  const std::int64_t end_of_shared = walk_found(
      list_, segments, block_size_, limit, [&](FreeList::Node node) { found_.push_back(node); });
  if (returns &&
      end_of_shared == std::min(limit, block_size_.whole(workload::shared_tokens(segments)))) {
    const std::uint32_t row = requests_.row(id);
    for (std::int64_t block = end_of_shared; block < limit; ++block) {
      const FreeList::Node node = list_.find(own_identity(row, block));
      if (node == FreeList::kNone) break;
      found_.push_back(node);
    }
  }
  return std::ssize(found_) * block_size_.tokens();
}

std::int64_t KvMemory::count_found(sim::RequestId id) const {
  if (!is_listed_) return 0;
  return walk_found(list_, requests_.segments(id), block_size_,
                    block_size_.whole(requests_.input_tokens(id)), [](FreeList::Node) {});
}

bool KvMemory::admit(sim::RequestId id, Holding& holding, std::int64_t tokens) {
  const std::int64_t found = std::ssize(found_);
  const std::int64_t computed = found * block_size_.tokens();
  const std::int64_t missing = blocks_for(computed + tokens) - found;
  holding.returned = returns_;
  if (tokens == 0) {
    // The whole prompt is cached, but the request does not reference it.
    if (found > 0) prefixes_.of(holding).omitted = found;
    holding.blocks = found;
    counts_.lookups += prompt_blocks_;
    return true;
  }
  if (config_.allocation == Allocation::check_then_act) {
    const auto still_free = std::count_if(found_.begin(), found_.end(),
                                          [&](FreeList::Node node) { return list_.is_free(node); });
    if (missing + still_free > free_) return false;
  } else if (missing > free_) {
    return false;
  }
  for (const FreeList::Node node : found_) free_ -= list_.reference(node) ? 1 : 0;
  if (missing > free_) {
    for (const FreeList::Node node : std::views::reverse(found_)) {
      free_ += list_.release(node) ? 1 : 0;
    }
    return false;
  }
  counts_.hits += found;
  counts_.lookups += prompt_blocks_;
  if (found > 0) prefixes_.of(holding).named.assign(found_.begin(), found_.end());
  take(missing);
  holding.blocks = found + missing;
  if (is_listed_) register_full(id, holding, computed + tokens);
  return true;
}

void KvMemory::register_full(sim::RequestId id, Holding& holding, std::int64_t tokens) {
  // Blocks that others can share, and blocks that the request itself may look for again. Its
  // unshared blocks get their identities when it is first preempted (`preempt`).
  const auto segments = requests_.segments(id);
  if (segments.empty() && !holding.returned) return;
  const std::int64_t already = prefixes_.count(holding);
  const std::int64_t shared = block_size_.whole(workload::shared_tokens(segments));
  const std::int64_t named =
      holding.returned ? block_size_.whole(requests_.input_tokens(id)) : shared;
  const std::int64_t full = std::min(block_size_.whole(tokens), named);
  if (full <= already) return;
  std::vector<FreeList::Node>& nodes = prefixes_.of(holding).named;
  for_shared_blocks(segments, block_size_, already, std::min(full, shared),
                    [&](std::int64_t, std::uint64_t identity) {
                      nodes.push_back(list_.add(identity));
                      return true;
                    });
  const std::uint32_t row = requests_.row(id);
  for (std::int64_t block = std::max(already, shared); block < full; ++block) {
    nodes.push_back(list_.add(own_identity(row, block)));
  }
}

void KvMemory::release_named(const Holding& holding) {
  if (holding.prefix == Holding::kNoPrefix) return;
  for (const FreeList::Node node : std::views::reverse(prefixes_.named(holding))) {
    free_ += list_.release(node) ? 1 : 0;
  }
  prefixes_.drop(holding);
}

void KvMemory::leave(const Holding& holding, std::int64_t computed, bool has_output) {
  std::int64_t own = own_blocks(holding);
  if (config_.stores_last_token && has_output && block_size_.rest(computed) == 0 && free_ > 0) {
    take(1);
    ++own;
  }
  free_ += own;
  if (!is_listed_) return;
  list_.append_blank(own);
  release_named(holding);
}

void KvMemory::preempt(sim::RequestId id, Holding& holding, std::int64_t computed) {
  const std::int64_t own = own_blocks(holding);
  if (!is_listed_ && config_.prefix_caching) list_blocks();
  free_ += own;
  if (is_listed_) {
    const std::int64_t full = block_size_.whole(computed);
    const std::int64_t first_own = prefixes_.count(holding);
    const std::uint32_t row = requests_.row(id);
    list_.append_blank(holding.blocks - std::max(full, first_own));
    for (std::int64_t block = full - 1; block >= first_own; --block) {
      list_.append(own_identity(row, block));
    }
    release_named(holding);
  }
  holding = {};
}

}  // namespace spillway::instance
