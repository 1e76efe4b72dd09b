#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::sim {

/// Maps well mixed 64-bit keys to indices: open addressing in one piece of memory that never
/// shrinks.
class FlatMap {
 public:
  static constexpr std::int32_t kNone = -1;

  /// The index of a key, or kNone.
  std::int32_t find(std::uint64_t key) const {
    if (used_ == 0) return kNone;
    return cells_[place_of(key)].index;
  }
  /// Sets or replaces; `index` ≥ 0.
  void set(std::uint64_t key, std::int32_t index) {
    if (2 * (used_ + 1) > cells_.size()) grow();
    Cell& cell = cells_[place_of(key)];
    used_ += cell.index == kNone ? 1 : 0;
    cell = {key, index};
  }
  void erase(std::uint64_t key) {
    if (used_ == 0) return;
    std::size_t hole = place_of(key);
    if (cells_[hole].index == kNone) return;
    --used_;
    // An entry behind the hole whose home is at or before it moves into it.
    for (std::size_t at = next(hole); cells_[at].index != kNone; at = next(at)) {
      const std::size_t home = cells_[at].key & mask();
      if (((at - home) & mask()) < ((at - hole) & mask())) continue;
      cells_[hole] = cells_[at];
      hole = at;
    }
    cells_[hole].index = kNone;
  }

 private:
  struct Cell {
    std::uint64_t key = 0;
    std::int32_t index = kNone;
  };

  std::size_t mask() const { return cells_.size() - 1; }
  std::size_t next(std::size_t at) const { return (at + 1) & mask(); }
  // The cell of the key, or where it would be.
  std::size_t place_of(std::uint64_t key) const {
    std::size_t at = key & mask();
    while (cells_[at].index != kNone && cells_[at].key != key) at = next(at);
    return at;
  }
  void grow() {
    std::vector<Cell> old(cells_.empty() ? 64 : 2 * cells_.size());
    old.swap(cells_);
    for (const Cell& cell : old) {
      if (cell.index != kNone) cells_[place_of(cell.key)] = cell;
    }
  }

  std::vector<Cell> cells_;  // the size is a power of two
  std::size_t used_ = 0;
};

}  // namespace spillway::sim
