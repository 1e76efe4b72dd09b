#include "numerics/recursive_least_squares.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace spillway::numerics {

namespace {

/// Number of samples from which outliers are detected.
constexpr std::int64_t kSamplesToJudge = 20;

}  // namespace

RecursiveLeastSquares::RecursiveLeastSquares(std::vector<double> first,
                                             const RegressionRules& rules)
    : rules_(rules),
      theta_(std::move(first)),
      covariance_(theta_.size() * theta_.size()),
      gain_(theta_.size()) {
  for (std::size_t i = 0; i < theta_.size(); ++i) covariance(i, i) = rules.initial_variance;
}

double RecursiveLeastSquares::predict(std::span<const double> x) const {
  return std::inner_product(theta_.begin(), theta_.end(), x.begin(), 0.0);
}

double RecursiveLeastSquares::trace() const {
  double sum = 0;
  for (std::size_t i = 0; i < theta_.size(); ++i) sum += covariance(i, i);
  return sum;
}

bool RecursiveLeastSquares::update(std::span<const double> x, double y) {
  const std::size_t n = theta_.size();
  const double error = y - predict(x);
  // A sample is judged by the errors so far. A run of outliers is a change: they widen the spread,
  // so that later samples are accepted.
  const bool is_outlier = samples_ >= kSamplesToJudge &&
                          std::abs(error) > rules_.outlier_sigmas * std::sqrt(mean_squared_error_);
  error_weight_ = rules_.forgetting * error_weight_ + 1;
  mean_squared_error_ += (error * error - mean_squared_error_) / error_weight_;
  if (is_outlier) return false;

  ++samples_;
  // If the covariance has grown too large, for lack of informative samples, nothing is forgotten.
  const bool may_forget = trace() / rules_.forgetting <= rules_.largest_trace;
  const double lambda = may_forget ? rules_.forgetting : 1;
  double spread = lambda;
  for (std::size_t i = 0; i < n; ++i) {
    gain_[i] = 0;
    for (std::size_t j = 0; j < n; ++j) gain_[i] += covariance(i, j) * x[j];
    spread += x[i] * gain_[i];
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const double updated = (covariance(i, j) - gain_[i] * gain_[j] / spread) / lambda;
      covariance(i, j) = updated;
      covariance(j, i) = updated;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    theta_[i] = std::max(0.0, theta_[i] + gain_[i] / spread * error);
  }
  return true;
}

}  // namespace spillway::numerics
