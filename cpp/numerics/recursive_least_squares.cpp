#include "numerics/recursive_least_squares.h"

#include <Eigen/Cholesky>
#include <cmath>
#include <numeric>

#include "numerics/nonnegative_least_squares.h"

namespace spillway::numerics {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// Number of samples from which outliers are detected.
constexpr std::int64_t kSamplesToJudge = 20;

}  // namespace

RecursiveLeastSquares::RecursiveLeastSquares(const std::vector<double>& first,
                                             const RegressionRules& rules)
    : rules_(rules),
      kept_weight_(static_cast<double>(first.size()) / rules.largest_trace),
      first_(VectorXd::Map(first.data(), static_cast<Index>(first.size()))),
      theta_(first_),
      information_(MatrixXd::Identity(first_.size(), first_.size()) / rules.initial_variance),
      moments_(first_ / rules.initial_variance),
      factor_(first_.size(), first_.size()),
      solution_(first_.size()) {}

double RecursiveLeastSquares::predict(std::span<const double> x) const {
  return std::inner_product(theta_.begin(), theta_.end(), x.begin(), 0.0);
}

double RecursiveLeastSquares::trace() const {
  return information_.llt().solve(MatrixXd::Identity(theta_.size(), theta_.size())).trace();
}

bool RecursiveLeastSquares::update(std::span<const double> x, double y) {
  const double error = y - predict(x);
  // A sample is judged by the errors so far. A run of outliers is a change: they widen the spread,
  // so that later samples are accepted.
  const bool is_outlier = samples_ >= kSamplesToJudge &&
                          std::abs(error) > rules_.outlier_sigmas * std::sqrt(mean_squared_error_);
  error_weight_ = rules_.forgetting * error_weight_ + 1;
  mean_squared_error_ += (error * error - mean_squared_error_) / error_weight_;
  if (is_outlier) return false;

  ++samples_;
  const double regained = (1 - rules_.forgetting) * kept_weight_;
  const auto inputs = VectorXd::Map(x.data(), theta_.size());
  information_ = rules_.forgetting * information_ + inputs * inputs.transpose();
  information_.diagonal().array() += regained;
  moments_ = rules_.forgetting * moments_ + y * inputs + regained * first_;
  solve();
  return true;
}

void RecursiveLeastSquares::solve() {
  factor_ = information_;
  const Eigen::LLT<Eigen::Ref<MatrixXd>> lower(factor_);
  if (lower.info() != Eigen::Success) return;  // samples too similar for double precision
  solution_ = moments_;
  lower.solveInPlace(solution_);
  if (solution_.minCoeff() < 0) {
    // |Lᵀθ − L⁻¹ moments|² differs from the weighted sum of squares by a constant.
    solution_ = nonnegative_least_squares(lower.matrixU(), lower.matrixL().solve(moments_));
  }
  theta_ = solution_;
}

}  // namespace spillway::numerics
