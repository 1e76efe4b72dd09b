#include "signals/prefix_index.h"

#include <algorithm>

#include "workload/prompts.h"

namespace spillway::signals {

PrefixIndex::PrefixIndex(const PrefixIndexConfig& config, const workload::RequestTable& requests,
                         std::span<const std::size_t> ranks)
    : config_(config), requests_(requests) {
  for (const std::size_t number : ranks) memories_.emplace_back(number);
}

void PrefixIndex::load_prompt(sim::RequestId id) {
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
  std::int64_t most = 0;
  for (std::size_t rank = 0; rank < memories_[instance].size(); ++rank) {
    most = std::max(most, matched_blocks(id, instance, rank));
  }
  return most;
}

std::int64_t PrefixIndex::matched_blocks(sim::RequestId id, std::size_t instance,
                                         std::size_t rank) {
  load_prompt(id);
  const Memory& memory = memories_[instance][rank];
  std::int64_t matched = 0;
  for (const Stretch& stretch : stretches_) {
    const Runs::Handle at = memory.by_key.find(stretch.key);
    // A run whose first blocks are forgotten cannot match.
    if (at == Runs::kNone || memory.runs[at].blocks < memory.runs[at].whole) break;
    matched += stretch.blocks;
  }
  return matched;
}

void PrefixIndex::sent(sim::RequestId id, std::size_t instance, std::size_t rank) {
  load_prompt(id);
  Memory& memory = memories_[instance][rank];
  std::int64_t own = prompt_blocks(id);
  for (const Stretch& stretch : stretches_) {
    memory.remember(stretch.key, stretch.blocks);
    own -= stretch.blocks;
  }
  if (own > 0) memory.remember(0, own);
  memory.forget_oldest(memory.blocks - config_.capacity_blocks);
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
