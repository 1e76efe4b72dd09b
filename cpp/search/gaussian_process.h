#pragma once

#include <Eigen/Core>
#include <optional>
#include <vector>

/// A Gaussian process that knows how noisy each observation is (stochastic kriging).
namespace spillway::search {

/// What was measured where. A point has one coordinate per parameter: a number in [0, 1], or, for a
/// categorical parameter, the number of the category. Two categories are a distance of 1 apart,
/// which is what a one-hot code with one length scale for all its columns amounts to.
struct Observations {
  Eigen::MatrixXd points;          ///< one row per observation
  Eigen::VectorXd values;          ///< standardised: priors and bounds of the fit expect that
  Eigen::VectorXd noise_variance;  ///< of each value: its squared standard error; 0 where unknown
  std::vector<bool> categorical;   ///< one per coordinate
};

/// Of the Matérn-5/2 kernel and a constant mean.
struct Hyperparameters {
  Eigen::VectorXd length_scales;  ///< one per coordinate
  double signal_variance = 1.0;
  double extra_noise_variance = 1e-6;  ///< of every value, on top of its own
  double mean = 0.0;
};

/// Normal priors of the logarithms. A length scale's is centred on its mean + ½ log(dimensions), as
/// the distance between points grows with the root of their number. The signal is expected to vary
/// more than the values that were seen, a few dozen of which miss the peaks: with a smaller
/// variance a noisy landscape is soon taken for a flat one.
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
  int max_evaluations = 60;                 ///< of the likelihood of all observations
};

/// Log marginal likelihood and its slope in log(length scales), log(signal variance) and
/// log(extra noise variance).
struct LogLikelihood {
  double value;
  Eigen::VectorXd gradient;
};

/// -inf if the covariance is singular.
LogLikelihood log_marginal_likelihood(const Observations& observations,
                                      const Hyperparameters& hyperparameters);

/// The most probable hyperparameters; the mean is profiled (generalised least squares). Several
/// starts compete on a part of the observations, the best is polished on larger parts and on all of
/// them. With a `warm_start` that one alone is polished.
Hyperparameters fit(const Observations& observations, const FitOptions& options,
                    const std::optional<Hyperparameters>& warm_start);

/// Of the noiseless function.
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
  /// Posterior mean at each observed and believed point, in their order.
  Eigen::VectorXd fitted() const;

  /// Conditions on a value that is still to come as if it were to be the posterior mean: what is
  /// uncertain around the point shrinks, the mean stays (a rank-one update).
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
