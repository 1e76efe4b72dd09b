#include "signals/prefix_index.h"

#include <algorithm>

#include "workload/prompts.h"

namespace spillway::signals {

namespace {
constexpr std::int32_t kNone = sim::FlatMap::kNone;
}

PrefixIndex::PrefixIndex(const PrefixIndexConfig& config, const workload::RequestTable& requests,
                         std::size_t num_instances)
    : config_(config), requests_(requests), memories_(num_instances) {}

void PrefixIndex::look_at(sim::RequestId id) {
  if (row_ == requests_.row(id)) return;
  row_ = requests_.row(id);
  stretches_.clear();
  workload::SharedBeginnings beginnings(requests_.segments(id));
  std::int64_t before = 0;
  while (beginnings.advance()) {
    const std::int64_t end = beginnings.tokens() / config_.block_size_tokens;
    if (end > before) stretches_.push_back({beginnings.key(), end - before});
    before = end;
  }
}

std::int64_t PrefixIndex::matched_blocks(sim::RequestId id, std::size_t instance) {
  look_at(id);
  Memory& memory = memories_[instance];
  std::int64_t matched = 0;
  for (const Stretch& stretch : stretches_) {
    const std::int32_t run = memory.by_key.find(stretch.key);
    // A run whose first blocks are forgotten is of no use: the match ends before it.
    if (run == kNone || memory.at(run).blocks < memory.at(run).whole) break;
    matched += stretch.blocks;
  }
  return matched;
}

void PrefixIndex::sent(sim::RequestId id, std::size_t instance) {
  look_at(id);
  Memory& memory = memories_[instance];
  std::int64_t own = prompt_blocks(id);
  for (const Stretch& stretch : stretches_) {
    memory.remember(stretch.key, stretch.blocks);
    own -= stretch.blocks;
  }
  if (own > 0) memory.remember(0, own);
  memory.forget_oldest(memory.blocks - config_.capacity_blocks);
}

void PrefixIndex::Memory::link_newest(std::int32_t run) {
  at(run).older = newest;
  at(run).newer = kNone;
  (newest == kNone ? oldest : at(newest).newer) = run;
  newest = run;
}

void PrefixIndex::Memory::unlink(std::int32_t run) {
  const Run& one = at(run);
  (one.older == kNone ? oldest : at(one.older).newer) = one.newer;
  (one.newer == kNone ? newest : at(one.newer).older) = one.older;
}

void PrefixIndex::Memory::remember(std::uint64_t key, std::int64_t count) {
  std::int32_t run = key == 0 ? kNone : by_key.find(key);
  if (run != kNone) {
    unlink(run);
    blocks -= at(run).blocks;
  } else {
    if (unused.empty()) {
      unused.push_back(static_cast<std::int32_t>(runs.size()));
      runs.emplace_back();
    }
    run = unused.back();
    unused.pop_back();
    if (key != 0) by_key.set(key, run);
  }
  at(run).key = key;
  at(run).blocks = count;
  at(run).whole = count;
  blocks += count;
  link_newest(run);
}

void PrefixIndex::Memory::forget_oldest(std::int64_t count) {
  while (count > 0) {
    const std::int32_t run = oldest;
    const std::int64_t gone = std::min(count, at(run).blocks);
    at(run).blocks -= gone;
    blocks -= gone;
    count -= gone;
    if (at(run).blocks > 0) continue;
    if (at(run).key != 0) by_key.erase(at(run).key);
    unlink(run);
    unused.push_back(run);
  }
}

}  // namespace spillway::signals
