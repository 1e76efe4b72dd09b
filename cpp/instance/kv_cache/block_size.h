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
  /// Full blocks in so many tokens (≥ 0).
  std::int64_t whole(std::int64_t tokens) const {
    return shift_ >= 0 ? tokens >> shift_ : tokens / tokens_;
  }
  /// Blocks that so many tokens need.
  std::int64_t blocks_for(std::int64_t tokens) const { return whole(tokens + tokens_ - 1); }
  /// Tokens in the block that is not full.
  std::int64_t rest(std::int64_t tokens) const {
    return shift_ >= 0 ? tokens & (tokens_ - 1) : tokens % tokens_;
  }

 private:
  std::int64_t tokens_;
  int shift_;  // −1: no power of two
};

}  // namespace spillway::instance
