#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spillway::numerics {

/// Parameters of a regression.
struct RegressionRules {
  double forgetting = 0.99;       ///< weight of a sample relative to the next one, in (0, 1]
  double initial_variance = 1e3;  ///< of the first coefficients, relative to that of a sample
  double largest_trace = 100;     ///< of the covariance, if samples are forgotten
  double outlier_sigmas = 4;      ///< samples with an error of more standard deviations are ignored
};

/// Non-negative linear regression y ≈ xᵀθ, sample by sample, with exponential forgetting.
///
/// While no sample is an outlier, θ is the non-negative weighted least squares solution over all
/// samples, in which each of the n first coefficients counts as one sample. The weight of these
/// begins at 1 / initial_variance and tends to n / largest_trace, as samples are forgotten: what
/// samples say nothing about returns to the first coefficients instead of following their noise.
class RecursiveLeastSquares {
 public:
  RecursiveLeastSquares(const std::vector<double>& first, const RegressionRules& rules);

  std::span<const double> coefficients() const { return {theta_.data(), size()}; }
  double predict(std::span<const double> x) const;
  /// False: the sample is an outlier and was ignored.
  bool update(std::span<const double> x, double y);
  /// Trace of the covariance.
  double trace() const;
  std::int64_t samples() const { return samples_; }

 private:
  std::size_t size() const { return static_cast<std::size_t>(theta_.size()); }
  void solve();

  RegressionRules rules_;
  double kept_weight_;  // of the first coefficients, however many samples are forgotten
  Eigen::VectorXd first_;
  Eigen::VectorXd theta_;
  // Normal equations information · θ = moments, relative to the variance of a sample.
  Eigen::MatrixXd information_;
  Eigen::VectorXd moments_;
  std::int64_t samples_ = 0;  // used
  // Mean of the squared errors before each update, weighted like the samples.
  double error_weight_ = 0;
  double mean_squared_error_ = 0;
  Eigen::MatrixXd factor_;  // kept for its memory, like the next
  Eigen::VectorXd solution_;
};

}  // namespace spillway::numerics
