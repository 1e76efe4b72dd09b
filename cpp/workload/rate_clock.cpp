#include "workload/rate_clock.h"

#include <cmath>
#include <limits>
#include <utility>

namespace spillway::workload {

RateClock::RateClock(double start_s, const std::vector<RatePoint>& profile,
                     std::optional<double> period_s)
    : period_s_(period_s), period_start_s_(start_s) {
  constexpr double kForever_s = std::numeric_limits<double>::infinity();
  const auto add = [&](double begin_s, double length_s, double from, double to) {
    if (length_s > 0) pieces_.push_back({begin_s, length_s, from, (to - from) / length_s});
  };
  if (profile.empty()) {
    pieces_.push_back({0, kForever_s, 1, 0});
    std::swap(period_start_s_, in_piece_s_);
    return;
  }
  const RatePoint& first = profile.front();
  const RatePoint& last = profile.back();
  // The factor at time 0: on the line from the last point to the first one of the next period.
  double at_zero = first.factor;
  if (period_s && first.at_s > 0) {
    const double to_first_s = *period_s - last.at_s + first.at_s;
    at_zero += (last.factor - first.factor) * first.at_s / to_first_s;
  }
  add(0, first.at_s, at_zero, first.factor);
  for (std::size_t i = 1; i < profile.size(); ++i) {
    const RatePoint& from = profile[i - 1];
    add(from.at_s, profile[i].at_s - from.at_s, from.factor, profile[i].factor);
  }
  if (period_s) {
    add(last.at_s, *period_s - last.at_s, last.factor, at_zero);
    for (const Piece& piece : pieces_) {
      per_period_s_ += piece.length_s * (piece.factor + piece.slope_per_s * piece.length_s / 2);
    }
  } else {
    pieces_.push_back({last.at_s, kForever_s, last.factor, 0});
  }
}

double RateClock::advance(double gap_s) {
  constexpr double kForever_s = std::numeric_limits<double>::infinity();
  if (std::isinf(gap_s)) return kForever_s;
  for (;;) {
    const Piece& now = pieces_[piece_];
    const double factor = std::fma(now.slope_per_s, in_piece_s_, now.factor);
    const double left_s = now.length_s - in_piece_s_;
    // An infinite piece has slope 0 and no end.
    const double left =
        std::isinf(left_s) ? kForever_s : left_s * (factor + now.slope_per_s * left_s / 2);
    if (gap_s < left) {
      const double end_factor =
          std::sqrt(std::fmax(0.0, factor * factor + 2 * now.slope_per_s * gap_s));
      const double step_s = gap_s > 0 ? 2 * gap_s / (factor + end_factor) : 0;
      in_piece_s_ += step_s;
      return period_start_s_ + now.start_s + in_piece_s_;
    }
    gap_s -= left;
    in_piece_s_ = 0;
    if (++piece_ < pieces_.size()) continue;
    piece_ = 0;
    if (!period_s_ || per_period_s_ == 0) return kForever_s;
    const double skipped = std::floor(gap_s / per_period_s_);
    gap_s -= skipped * per_period_s_;
    period_start_s_ += (1 + skipped) * *period_s_;
  }
}

}  // namespace spillway::workload
