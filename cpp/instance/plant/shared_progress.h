#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::instance {

/// A figure by concurrency: linear between the points of a table, constant beyond them.
class Figure {
 public:
  Figure(const std::vector<double>& concurrency, const std::vector<double>& seconds)
      : x_(concurrency), y_(seconds) {
    for (double& y : y_) y *= 1e9;
  }
  double ns_at(std::size_t requests) const {
    const auto n = static_cast<double>(requests);
    const auto above = std::upper_bound(x_.begin(), x_.end(), n);
    if (above == x_.begin()) return y_.front();
    if (above == x_.end()) return y_.back();
    const auto i = static_cast<std::size_t>(above - x_.begin());
    return y_[i - 1] + (n - x_[i - 1]) / (x_[i] - x_[i - 1]) * (y_[i] - y_[i - 1]);
  }

 private:
  std::vector<double> x_;
  std::vector<double> y_;
};

/// Rounds a span up to whole quanta. Spans too long for the clock saturate.
inline sim::Time round_up(double ns, std::int64_t quantum_ns) {
  // Smaller values are rounding errors of double arithmetic.
  constexpr double kNoTime_ns = 1e-3;
  const double quanta = std::ceil((ns - kNoTime_ns) / static_cast<double>(quantum_ns));
  if (quanta <= 0) return {0};
  if (!(ns < sim::kLongestSpan_s * 1e9)) return sim::from_seconds(sim::kLongestSpan_s);
  return {static_cast<std::int64_t>(quanta) * quantum_ns};
}

/// The common progress of all requests inside, as a virtual clock: it advances by dt/E(n), so a
/// request completes when the clock has advanced by the request's work since its entry.
class SharedProgress {
 public:
  /// `e2e`: E(n).
  SharedProgress(Figure e2e, std::int64_t quantum_ns)
      : e2e_(std::move(e2e)), quantum_ns_(quantum_ns) {}

  std::size_t inside() const { return inside_; }
  /// The progress at the last `advance`.
  double value() const { return value_; }
  double at(sim::Time now) const {
    return inside_ > 0 ? value_ + static_cast<double>((now - updated_).ns) / e2e_ns_ : value_;
  }
  void advance(sim::Time now) {
    value_ = at(now);
    updated_ = now;
  }
  /// Sets the number of requests inside.
  void set_inside(std::size_t requests) {
    inside_ = requests;
    e2e_ns_ = e2e_.ns_at(inside_);
    if (inside_ == 0) value_ = 0;  // small values keep the arithmetic exact
  }
  /// Time until it reaches `target`, if no request enters or leaves before.
  sim::Time time_to(double target) const { return time_from(value_, target); }
  /// The same from a value on.
  sim::Time time_from(double value, double target) const {
    return round_up((target - value) * e2e_ns_, quantum_ns_);
  }

 private:
  Figure e2e_;
  std::int64_t quantum_ns_;
  std::size_t inside_ = 0;
  double e2e_ns_ = 1;  // E at this concurrency
  double value_ = 0;
  sim::Time updated_{0};
};

/// A request inside. `…_at` are values of the progress.
struct Seat {
  static constexpr std::uint64_t kFree = 0xFFFFFFFFFFFFFFFF;

  sim::RequestId id;
  std::uint64_t entry = kFree;  ///< order of entry
  double done_at = 0;
  double first_token_at = 0;
  bool has_first_token = false;

  /// Number of output tokens after the first, out of `all`, spread evenly over the progress since
  /// the first.
  std::int32_t later_tokens(std::int32_t all, double progress) const {
    const double share = (progress - first_token_at) / (done_at - first_token_at);
    return static_cast<std::int32_t>(static_cast<double>(all) * std::min(share, 1.0));
  }
};

/// Seats by number; free ones are reused.
class Seats {
 public:
  std::uint32_t take() {
    if (free_.empty()) {
      all_.emplace_back();
      return static_cast<std::uint32_t>(all_.size() - 1);
    }
    const std::uint32_t seat = free_.back();
    free_.pop_back();
    return seat;
  }
  void vacate(std::uint32_t seat) {
    all_[seat].entry = Seat::kFree;
    free_.push_back(seat);
  }
  /// The seat of a request; unset if it is not inside.
  std::optional<std::uint32_t> find(sim::RequestId id) const {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].entry != Seat::kFree && all_[i].id == id) return static_cast<std::uint32_t>(i);
    }
    return std::nullopt;
  }
  Seat& operator[](std::uint32_t seat) { return all_[seat]; }
  const Seat& operator[](std::uint32_t seat) const { return all_[seat]; }
  /// All seats, including free ones.
  const std::vector<Seat>& all() const { return all_; }

 private:
  std::vector<Seat> all_;
  std::vector<std::uint32_t> free_;
};

/// An item that is due for a request when a clock reaches `at`.
template <class Clock>
struct Due {
  Clock at{};
  std::uint64_t entry = 0;  ///< see Seat
  std::uint32_t seat = 0;

  friend auto operator<=>(const Due&, const Due&) = default;
};

/// Due items, the earliest first.
template <class Clock>
class Agenda {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  const Due<Clock>& first() const { return heap_.front(); }
  void push(const Due<Clock>& due) {
    heap_.push_back(due);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
  }
  Due<Clock> pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
    const Due<Clock> due = heap_.back();
    heap_.pop_back();
    return due;
  }
  template <class Predicate>
  void erase_if(const Predicate& predicate) {
    std::erase_if(heap_, predicate);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>{});
  }

 private:
  std::vector<Due<Clock>> heap_;
};

}  // namespace spillway::instance
