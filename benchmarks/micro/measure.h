#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace micro {

/// Keeps the compiler from removing the computation of `value`.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// Prints nanoseconds per operation as a line of JSON: the median of five rounds, each of at least
/// 50 ms. `run(n)` performs n operations.
template <class Run>
void measure(const char* name, std::size_t size, Run&& run) {
  using Clock = std::chrono::steady_clock;
  const auto time_ns = [&](std::size_t operations) {
    const auto start = Clock::now();
    run(operations);
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  };
  std::size_t operations = 1024;
  while (time_ns(operations) < 50e6) operations *= 2;
  std::array<double, 5> rounds{};
  for (double& round : rounds) round = time_ns(operations) / static_cast<double>(operations);
  std::sort(rounds.begin(), rounds.end());
  std::printf("{\"name\": \"%s\", \"size\": %zu, \"ns\": %.2f}\n", name, size, rounds[2]);
  std::fflush(stdout);
}

/// A fixed sequence of numbers below `bound`, the same on every machine.
class Sequence {
 public:
  explicit Sequence(std::uint64_t bound) {
    std::uint64_t state = 1;
    for (std::int64_t& number : numbers_) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      number = static_cast<std::int64_t>((state >> 33U) % bound);
    }
  }
  std::int64_t next() { return numbers_[next_++ % numbers_.size()]; }

 private:
  std::array<std::int64_t, 4096> numbers_{};
  std::size_t next_ = 0;
};

}  // namespace micro
