#include "signals/prefix_index.h"

#include <algorithm>

#include "workload/prompts.h"

namespace spillway::signals {

PrefixIndex::PrefixIndex(std::int64_t capacity_blocks, std::int64_t block_size_tokens,
                         const workload::RequestTable& requests, std::span<const std::size_t> ranks)
    : capacity_blocks_(capacity_blocks),
      block_size_tokens_(block_size_tokens),
      requests_(requests) {
  for (const std::size_t number : ranks) memories_.emplace_back(number);
}

void PrefixIndex::load_prompt(sim::RequestId id) {
  prompt_.row = requests_.row(id);
  prompt_.blocks = requests_.input_tokens(id) / block_size_tokens_;
  prompt_.stretches.clear();
  workload::SharedBeginnings beginnings(requests_.segments(id));
  std::int64_t before = 0;
  while (beginnings.advance()) {
    const std::int64_t end = beginnings.tokens() / block_size_tokens_;
    if (end > before) prompt_.stretches.push_back({beginnings.key(), end - before});
    before = end;
  }
}

void PrefixIndex::sent(sim::RequestId id, std::size_t instance, std::size_t rank) {
  const Prompt& whole = prompt(id);
  Memory& memory = memories_[instance][rank];
  std::int64_t own = whole.blocks;
  for (const Stretch& stretch : whole.stretches) {
    memory.remember(stretch.key, stretch.blocks);
    own -= stretch.blocks;
  }
  if (own > 0) memory.remember(0, own);
  if (memory.blocks <= capacity_blocks_) return;
  has_forgotten_ = true;
  memory.forget_oldest(memory.blocks - capacity_blocks_);
}

void PrefixIndex::Memory::remember(std::uint64_t key, std::int64_t count) {
  const Run run{key, count, count};
  const Runs::Handle known = key == 0 ? Runs::kNone : by_key.find(key);
  if (known == Runs::kNone) {
    const Runs::Handle added = runs.push_back(run);
    if (key != 0) by_key.set(key, added);
  } else {
    blocks -= runs[known].blocks;
    runs[known] = run;
    runs.unlink(known);
    runs.link_back(known);
  }
  blocks += count;
}

void PrefixIndex::Memory::forget_oldest(std::int64_t count) {
  while (count > 0) {
    const Runs::Handle oldest = runs.front();
    Run& run = runs[oldest];
    const std::int64_t gone = std::min(count, run.blocks);
    run.blocks -= gone;
    blocks -= gone;
    count -= gone;
    if (run.blocks > 0) continue;
    if (run.key != 0) by_key.erase(run.key);
    runs.erase(oldest);
  }
}

}  // namespace spillway::signals
