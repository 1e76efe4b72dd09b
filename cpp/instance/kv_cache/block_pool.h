#pragma once

#include <cstdint>

namespace spillway::instance {

/// Paged KV memory of one instance: so many blocks of so many tokens. Checks, then acts: an
/// allocation that does not fit changes nothing.
class BlockPool {
 public:
  BlockPool(std::int64_t num_blocks, std::int64_t block_size_tokens)
      : total_(num_blocks), free_(num_blocks), block_size_(block_size_tokens) {}

  std::int64_t blocks_for(std::int64_t tokens) const {
    return (tokens + block_size_ - 1) / block_size_;
  }
  /// Extends a request that holds `held` blocks to `tokens` tokens; `held` grows. False if that
  /// does not fit.
  bool extend(std::int64_t& held, std::int64_t tokens) {
    const std::int64_t missing = blocks_for(tokens) - held;
    if (missing <= 0) return true;
    if (missing > free_) return false;
    free_ -= missing;
    held += missing;
    return true;
  }
  void release(std::int64_t& held) {
    free_ += held;
    held = 0;
  }

  std::int64_t total() const { return total_; }
  std::int64_t free() const { return free_; }
  double utilization() const {
    return static_cast<double>(total_ - free_) / static_cast<double>(total_);
  }

 private:
  std::int64_t total_;
  std::int64_t free_;
  std::int64_t block_size_;
};

}  // namespace spillway::instance
