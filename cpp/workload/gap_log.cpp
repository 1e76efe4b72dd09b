#include "workload/gap_log.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "numerics/fibonacci_hash.h"

namespace spillway::workload {

using sim::Time;

namespace {
constexpr unsigned kRecentBits = 8;
}

void GapLog::append(Time gap, std::int64_t count) {
  if (recent_.empty()) recent_.resize(std::size_t{1} << kRecentBits, 0);
  std::uint32_t& recent = recent_[numerics::fibonacci_hash(gap.ns) >> (64 - kRecentBits)];
  if (recent >= values_.size() || values_[recent] != gap) {
    recent = static_cast<std::uint32_t>(values_.size());
    values_.push_back(gap);
  }
  entries_.push_back({recent, static_cast<std::int32_t>(count)});
}

void GapLog::drop_sections(std::int64_t open) {
  GapLog kept;
  for (auto i = static_cast<std::size_t>(open - dropped_); i < entries_.size(); ++i) {
    kept.append(values_[entries_[i].value], entries_[i].count);
  }
  kept.dropped_ = open;
  kept.limit_ = kFewest + 2 * kept.entries_.size();
  *this = std::move(kept);
}

void GapIndex::add(const GapLog& log) {
  const auto first_value = static_cast<std::uint32_t>(values_.size());
  const auto first_entry = static_cast<std::uint32_t>(entries_.size());
  values_.insert(values_.end(), log.values().begin(), log.values().end());
  for (const GapLog::Entry& entry : log.entries()) {
    entries_.push_back({first_value + entry.value, entry.count});
  }
  for (const GapLog::Section& section : log.sections()) {
    sections_.push_back({section.group, first_entry + section.begin, first_entry + section.end});
  }
}

void GapIndex::build(std::size_t num_groups) {
  std::vector<Time> distinct = values_;
  std::ranges::sort(distinct);
  distinct.erase(std::ranges::unique(distinct).begin(), distinct.end());
  std::vector<std::uint32_t> rank(values_.size());
  std::ranges::transform(values_, rank.begin(), [&](Time gap) {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(distinct, gap) - distinct.begin());
  });
  for (GapLog::Entry& entry : entries_) entry.value = rank[entry.value];
  values_ = std::move(distinct);

  first_.assign(num_groups + 1, 0);
  for (const GapLog::Section& section : sections_) ++first_[section.group + 1];
  for (std::size_t i = 0; i < num_groups; ++i) first_[i + 1] += first_[i];
  std::vector<GapLog::Section> by_group(sections_.size());
  std::vector<std::uint32_t> next = first_;
  for (const GapLog::Section& section : sections_) by_group[next[section.group]++] = section;
  sections_ = std::move(by_group);
}

numerics::ValueCounts GapIndex::sorted(std::span<const std::size_t> groups, Room& room) const {
  auto& [counts, occurs] = room;
  counts.resize(values_.size(), 0);
  occurs.resize(values_.size() / 64 + 1, 0);
  for (const std::size_t group : groups) {
    for (std::uint32_t s = first_[group]; s < first_[group + 1]; ++s) {
      for (std::uint32_t i = sections_[s].begin; i < sections_[s].end; ++i) {
        const GapLog::Entry& entry = entries_[i];
        counts[entry.value] += entry.count;
        occurs[entry.value / 64] |= std::uint64_t{1} << (entry.value % 64);
      }
    }
  }
  std::size_t num_distinct = 0;
  for (const std::uint64_t bits : occurs) {
    num_distinct += static_cast<std::size_t>(std::popcount(bits));
  }
  numerics::ValueCounts pairs;
  pairs.reserve(num_distinct);
  for (std::size_t word = 0; word < occurs.size(); ++word) {
    for (std::uint64_t bits = std::exchange(occurs[word], 0); bits != 0; bits &= bits - 1) {
      const std::size_t value = 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
      pairs.emplace_back(values_[value].ns, std::exchange(counts[value], 0));
    }
  }
  return pairs;
}

}  // namespace spillway::workload
