#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/mix.h"
#include "workload/requests.h"

namespace spillway::workload {

/// Iterates over the shared segments of a prompt and gives each beginning that they complete a key:
/// two prompts are equal up to the end of a segment if and only if (but for collisions of 64-bit
/// hashes) that segment has the same key in both.
class SharedBeginnings {
 public:
  explicit SharedBeginnings(std::span<const Segment> segments) : left_(segments) {}
  /// `answer` follows the segments, unless it is without tokens.
  SharedBeginnings(std::span<const Segment> segments, const Segment& answer)
      : left_(segments), answer_(answer) {}

  /// Moves to the next segment; false if there is none.
  bool advance() {
    if (!left_.empty()) {
      add(left_.front());
      left_ = left_.subspan(1);
      return true;
    }
    if (answer_.tokens == 0) return false;
    add(answer_);
    answer_.tokens = 0;
    return true;
  }
  std::uint64_t key() const { return key_; }
  /// Tokens up to the end of the segment.
  std::int64_t tokens() const { return tokens_; }

 private:
  void add(const Segment& segment) {
    key_ = sim::mix(sim::mix(key_ ^ segment.content) + segment.tokens);
    tokens_ += segment.tokens;
  }

  std::span<const Segment> left_;
  Segment answer_;
  std::uint64_t key_ = 0;
  std::int64_t tokens_ = 0;
};

/// Tokens of a beginning of prompts, from one position to another.
struct CachedPart {
  std::uint64_t key = 0;  ///< of the beginning (`SharedBeginnings`) whose last segment holds them
  std::int64_t from_tokens = 0;
  std::int64_t to_tokens = 0;
};

/// What is cached when a run of these requests starts (`Requests::warm_tokens`), each part once, in
/// the order in which the prompts first have it.
std::vector<CachedPart> warm_parts(const Requests& requests);

inline std::int64_t shared_tokens(std::span<const Segment> segments) {
  std::int64_t tokens = 0;
  for (const Segment& segment : segments) tokens += segment.tokens;
  return tokens;
}

}  // namespace spillway::workload
