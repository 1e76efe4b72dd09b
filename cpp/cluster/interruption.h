#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace spillway::cluster {

/// Asks now and then whether a run is to end.
class Interruption {
 public:
  /// Number of events between two calls of `ask`, which seldom asks.
  static constexpr std::uint64_t kEventsBetweenCalls = 64;

  /// `is_wanted`: the question; may be empty.
  explicit Interruption(std::function<bool()> is_wanted) : is_wanted_(std::move(is_wanted)) {}

  /// `events`: handled since the start of the run. Throws Interrupted if it is to end.
  void ask(std::uint64_t events) {
    if (is_wanted_ && events >= next_) ask_now(events);
  }

 private:
  void ask_now(std::uint64_t events);

  std::function<bool()> is_wanted_;
  std::uint64_t next_ = 0;  // number of events before the next question
  std::uint64_t spacing_ = kEventsBetweenCalls;
  std::chrono::steady_clock::time_point asked_;
};

}  // namespace spillway::cluster
