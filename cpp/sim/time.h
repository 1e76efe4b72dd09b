#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace spillway::sim {

/// A simulated time or duration in integer nanoseconds: the simulator's only clock type.
struct Time {
  std::int64_t ns = 0;

  friend constexpr auto operator<=>(Time, Time) = default;
  constexpr Time& operator+=(Time other) {
    ns += other.ns;
    return *this;
  }
  friend constexpr Time operator+(Time a, Time b) { return {a.ns + b.ns}; }
  friend constexpr Time operator-(Time a, Time b) { return {a.ns - b.ns}; }
};

/// Marks a timestamp that has not been set.
inline constexpr Time kUnset{-1};
inline constexpr Time kForever{std::numeric_limits<std::int64_t>::max()};

/// Maximum duration, in seconds, in configurations and traces: 100 years.
inline constexpr double kLongestSpan_s = 3.2e9;

constexpr bool is_set(Time t) { return t.ns >= 0; }
/// The nearest double.
constexpr double to_seconds(Time t) { return static_cast<double>(t.ns) / 1e9; }

/// Nearest nanosecond to `seconds`, which must be finite and at most `kLongestSpan_s`.
constexpr Time from_seconds(double seconds) {
  const double ns = seconds * 1e9;
  return {static_cast<std::int64_t>(ns < 0 ? ns - 0.5 : ns + 0.5)};
}

/// The unit of which durations are whole multiples.
class Quantum {
 public:
  constexpr explicit Quantum(std::int64_t ns)
      : ns_(ns),
        per_us_(1000.0 / static_cast<double>(ns)),
        longest_(kLongestSpan_s * 1e9 / static_cast<double>(ns)) {}

  constexpr Time span() const { return {ns_}; }
  /// `microseconds` truncated toward zero to whole quanta. Durations too long for the clock
  /// saturate.
  constexpr Time truncate_us(double microseconds) const {
    const double quanta = microseconds * per_us_;
    if (!(quanta < longest_)) return from_seconds(kLongestSpan_s);
    return {static_cast<std::int64_t>(quanta) * ns_};
  }

 private:
  std::int64_t ns_;
  double per_us_;
  double longest_;
};

}  // namespace spillway::sim
