#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spillway::numerics {

/// Parameters of a regression.
struct RegressionRules {
  double forgetting = 0.99;       ///< weight of a sample relative to the next one, in (0, 1]
  double initial_variance = 1e3;  ///< of the first coefficients, relative to that of a sample
  double largest_trace = 1e6;     ///< of the covariance; beyond it nothing is forgotten
  double outlier_sigmas = 4;      ///< samples with an error of more standard deviations are ignored
};

/// Non-negative linear regression y ≈ xᵀθ, sample by sample, with exponential forgetting.
///
/// While no coefficient would become negative, no sample is an outlier and the covariance stays in
/// bounds, θ is the weighted least squares solution over all samples, in which the first
/// coefficients count as one sample each, of variance `initial_variance`.
class RecursiveLeastSquares {
 public:
  RecursiveLeastSquares(std::vector<double> first, const RegressionRules& rules);

  std::span<const double> coefficients() const { return theta_; }
  double predict(std::span<const double> x) const;
  /// False: the sample is an outlier and was ignored.
  bool update(std::span<const double> x, double y);
  /// Trace of the covariance.
  double trace() const;
  std::int64_t samples() const { return samples_; }

 private:
  double& covariance(std::size_t i, std::size_t j) { return covariance_[i * theta_.size() + j]; }
  double covariance(std::size_t i, std::size_t j) const {
    return covariance_[i * theta_.size() + j];
  }

  RegressionRules rules_;
  std::vector<double> theta_;
  std::vector<double> covariance_;  // relative to the variance of a sample; by rows
  std::int64_t samples_ = 0;        // used
  // Mean of the squared errors before each update, weighted like the samples.
  double error_weight_ = 0;
  double mean_squared_error_ = 0;
  std::vector<double> gain_;  // kept for its memory
};

}  // namespace spillway::numerics
