#pragma once

#include <Eigen/Core>
#include <optional>
#include <vector>

/// A Gaussian process with a known noise variance for each observation (stochastic kriging).
namespace spillway::search {

/// The measured points and values. A point has one coordinate per parameter: a number in [0, 1] or,
/// for a categorical parameter, the number of the category. The distance between two categories is
/// 1, as with a one-hot code that has one length scale for all its columns.
struct Observations {
  Eigen::MatrixXd points;          ///< one row per observation
  Eigen::VectorXd values;          ///< standardized, as the priors and bounds of the fit require
  Eigen::VectorXd noise_variance;  ///< squared standard error of each value; 0 if unknown
  std::vector<bool> categorical;   ///< one per coordinate
};

/// Hyperparameters of the Matérn-5/2 kernel and a constant mean.
struct Hyperparameters {
  Eigen::VectorXd length_scales;  ///< one per coordinate
  double signal_variance = 1.0;
  double extra_noise_variance = 1e-6;  ///< of every value, in addition to its own
  double mean = 0.0;
};

/// Normal priors of the logarithms. The prior of a length scale is centered on its mean + ½
/// log(dimensions), because the distance between points grows with the root of their number. The
/// signal is expected to vary more than the observed values, since a few dozen of them miss the
/// peaks: with a smaller variance, a noisy landscape would soon be taken for a flat one.
struct Priors {
  double log_length_scale_mean = -1.6;
  double log_length_scale_sd = 0.4;
  double log_signal_variance_mean = 1.2;
  double log_signal_variance_sd = 0.3;
  double log_extra_noise_mean = -7.0;
  double log_extra_noise_sd = 2.0;
};

struct FitOptions {
  std::optional<Priors> priors = Priors{};  ///< none: maximum likelihood
  int max_evaluations = 60;                 ///< evaluations of the likelihood of all observations
};

/// Log marginal likelihood and its gradient in log(length scales), log(signal variance) and
/// log(extra noise variance).
struct LogLikelihood {
  double value;
  Eigen::VectorXd gradient;
};

/// -inf if the covariance is singular.
LogLikelihood log_marginal_likelihood(const Observations& observations,
                                      const Hyperparameters& hyperparameters);

/// The most probable hyperparameters; the mean is profiled (generalized least squares). Several
/// starts compete on a part of the observations; the best one is refined on larger parts and on all
/// of them. With a `warm_start`, only that one is refined.
Hyperparameters fit(const Observations& observations, const FitOptions& options,
                    const std::optional<Hyperparameters>& warm_start);

/// Posterior of the noiseless function.
struct Posterior {
  Eigen::VectorXd mean;
  Eigen::VectorXd variance;
};

struct PointPosterior {
  double mean;
  double variance;
  Eigen::VectorXd mean_gradient;  ///< 0 for categorical coordinates
  Eigen::VectorXd variance_gradient;
};

class GaussianProcess {
 public:
  GaussianProcess(Observations observations, Hyperparameters hyperparameters);

  Posterior predict(const Eigen::MatrixXd& points) const;
  PointPosterior predict_with_gradient(const Eigen::VectorXd& point) const;
  /// Posterior mean at each observed and believed point, in order.
  Eigen::VectorXd fitted() const;

  /// Conditions on a pending value as if it were the posterior mean: the variance around the point
  /// shrinks, the mean stays (a rank-one update).
  void believe(const Eigen::VectorXd& point, double noise_variance);

  const Observations& observations() const { return observations_; }
  const Hyperparameters& hyperparameters() const { return hyperparameters_; }

 private:
  Observations observations_;
  Hyperparameters hyperparameters_;
  Eigen::MatrixXd factor_;   ///< lower Cholesky factor of the covariance of the values
  Eigen::VectorXd weights_;  ///< inverse covariance × (values − mean)
};

}  // namespace spillway::search
