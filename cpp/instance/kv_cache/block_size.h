#pragma once

#include <bit>
#include <cstdint>

namespace spillway::instance {

/// Tokens per block, with fast division for powers of two, the usual case.
class BlockSize {
 public:
  explicit BlockSize(std::int64_t tokens)
      : tokens_(tokens),
        shift_(std::has_single_bit(static_cast<std::uint64_t>(tokens))
                   ? std::countr_zero(static_cast<std::uint64_t>(tokens))
                   : -1) {}

  std::int64_t tokens() const { return tokens_; }
  /// Number of full blocks in `tokens` ≥ 0 tokens.
  std::int64_t whole(std::int64_t tokens) const {
    return shift_ >= 0 ? tokens >> shift_ : tokens / tokens_;
  }
  /// Number of blocks for `tokens` tokens.
  std::int64_t blocks_for(std::int64_t tokens) const { return whole(tokens + tokens_ - 1); }
  /// Number of tokens in the last, partial block.
  std::int64_t rest(std::int64_t tokens) const {
    return shift_ >= 0 ? tokens & (tokens_ - 1) : tokens % tokens_;
  }

 private:
  std::int64_t tokens_;
  int shift_;  // −1: not a power of two
};

}  // namespace spillway::instance
