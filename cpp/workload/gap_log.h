#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/weighted_sample.h"
#include "sim/time.h"

namespace spillway::workload {

/// The gaps between tokens that steps give all decoders of an engine, in order, and which requests
/// had which of them.
class GapLog {
 public:
  struct Entry {
    std::uint32_t value = 0;  ///< position of the gap in `values`
    std::int32_t count = 0;
  };
  /// The entries of one request.
  struct Section {
    std::uint32_t group = 0;  ///< of the request
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  /// Position of the next entry. Positions stay valid when older entries are dropped.
  std::int64_t end() const { return dropped_ + std::ssize(entries_); }
  void append(sim::Time gap, std::int64_t count);
  /// A request of the group had all gaps from `begin` on, and has no more.
  void close_section(std::int64_t begin, std::size_t group) {
    sections_.push_back({static_cast<std::uint32_t>(group),
                         static_cast<std::uint32_t>(begin - dropped_),
                         static_cast<std::uint32_t>(entries_.size())});
  }

  /// A gap may occur more than once.
  const std::vector<sim::Time>& values() const { return values_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Section>& sections() const { return sections_; }

  /// Whether it has grown so much that its sections should be counted and dropped.
  bool is_full() const { return entries_.size() >= limit_; }
  /// Drops all sections, and the entries before `open`, the begin of the first section that is
  /// still to be closed.
  void drop_sections(std::int64_t open);

 private:
  static constexpr std::size_t kFewest = std::size_t{1} << 16;

  std::vector<sim::Time> values_;
  std::vector<Entry> entries_;
  std::vector<Section> sections_;
  std::vector<std::uint32_t> recent_;  // positions of recent gaps in `values_`, by hash
  std::int64_t dropped_ = 0;           // number of entries
  std::size_t limit_ = kFewest;
};

/// The sections of the logs of all engines, by group, when a run has ended.
class GapIndex {
 public:
  /// Memory for `sorted`.
  struct Room {
    std::vector<std::int64_t> counts;   // by value; zero between calls, like the next
    std::vector<std::uint64_t> occurs;  // a bit per value
  };

  bool empty() const { return sections_.empty(); }
  void add(const GapLog& log);
  /// All logs have been added.
  void build(std::size_t num_groups);
  /// Gaps (ns) of the requests of some groups.
  numerics::ValueCounts sorted(std::span<const std::size_t> groups, Room& room) const;

 private:
  std::vector<sim::Time> values_;  // ascending, once it is built
  std::vector<GapLog::Entry> entries_;
  std::vector<GapLog::Section> sections_;  // by group, once it is built
  std::vector<std::uint32_t> first_;       // section of each group
};

}  // namespace spillway::workload
