#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "workload/rate_profile.h"

namespace spillway::workload {

/// A clock whose speed is the rate: a gap of one second at factor 2 takes half a second. Poisson
/// arrivals on this clock are the inhomogeneous Poisson process with the rate of the profile.
class RateClock {
 public:
  /// Preconditions: as `Client::validate` checks. An empty profile: the factor is always 1.
  RateClock(double start_s, const std::vector<RatePoint>& profile, std::optional<double> period_s);

  /// The time after a further `gap_s` of the clock, in s; infinite if the rate is 0 from some time
  /// on and the clock never gets there.
  double advance(double gap_s);

 private:
  struct Piece {
    double start_s;
    double length_s;  // of the last piece without a period: infinite
    double factor;    // at its start
    double slope_per_s;
  };

  std::vector<Piece> pieces_;
  std::optional<double> period_s_;
  double per_period_s_ = 0;  // time of the clock per period
  double period_start_s_;
  std::size_t piece_ = 0;
  double in_piece_s_ = 0;
};

}  // namespace spillway::workload
