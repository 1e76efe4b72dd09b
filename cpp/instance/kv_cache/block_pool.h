#pragma once

#include <bit>
#include <cstdint>

namespace spillway::instance {

/// Tokens per block, with division made cheap where it is a power of two, as it is as a rule.
class BlockSize {
 public:
  explicit BlockSize(std::int64_t tokens)
      : tokens_(tokens),
        shift_(std::has_single_bit(static_cast<std::uint64_t>(tokens))
                   ? std::countr_zero(static_cast<std::uint64_t>(tokens))
                   : -1) {}

  std::int64_t tokens() const { return tokens_; }
  /// Whole blocks in so many tokens (≥ 0), and the tokens that are left over.
  std::int64_t whole(std::int64_t tokens) const {
    return shift_ >= 0 ? tokens >> shift_ : tokens / tokens_;
  }
  std::int64_t rest(std::int64_t tokens) const {
    return shift_ >= 0 ? tokens & (tokens_ - 1) : tokens % tokens_;
  }

 private:
  std::int64_t tokens_;
  int shift_;  // −1: no power of two
};

/// Paged KV memory of one instance: so many blocks of so many tokens. Checks, then acts: an
/// allocation that does not fit changes nothing.
class BlockPool {
 public:
  BlockPool(std::int64_t num_blocks, std::int64_t block_size_tokens)
      : total_(num_blocks), free_(num_blocks), block_size_(block_size_tokens) {}

  std::int64_t blocks_for(std::int64_t tokens) const {
    return block_size_.whole(tokens + block_size_.tokens() - 1);
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
  /// Takes blocks that are known to be free.
  void take(std::int64_t blocks) { free_ -= blocks; }
  void give_back(std::int64_t blocks) { free_ += blocks; }
  void release(std::int64_t& held) {
    free_ += held;
    held = 0;
  }

  const BlockSize& block_size() const { return block_size_; }
  std::int64_t total() const { return total_; }
  std::int64_t free() const { return free_; }
  double utilization() const {
    return static_cast<double>(total_ - free_) / static_cast<double>(total_);
  }

 private:
  std::int64_t total_;
  std::int64_t free_;
  BlockSize block_size_;
};

}  // namespace spillway::instance
