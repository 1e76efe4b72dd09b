#pragma once

#include <Eigen/Core>
#include <optional>

namespace spillway::numerics {

/// Coefficients of a step time, in the order of a vector of them: constant, weights, token, decode,
/// decode_context, prefill_context, chunk. See instance::Roofline.
inline constexpr Eigen::Index kStepCoefficients = 7;
/// Columns of a batch: prefill tokens P, decoding requests D, their context C, prefill attention
/// A = Σ n·(context + n/2), prefilling requests K.
inline constexpr Eigen::Index kBatchColumns = 5;

using StepCoefficients = Eigen::Matrix<double, kStepCoefficients, 1>;
using StepCovariance = Eigen::Matrix<double, kStepCoefficients, kStepCoefficients>;

/// Measured steps, one per row.
struct StepRows {
  Eigen::MatrixXd batches;  ///< with kBatchColumns columns, ≥ 0
  Eigen::VectorXd step_us;  ///< > 0
  Eigen::VectorXd weights;  ///< of the squared errors; a row of weight 0 does not count
};

/// Independent normal priors of the coefficients.
struct StepPrior {
  StepCoefficients mean;
  StepCoefficients width;  ///< standard deviation; 0 holds the coefficient at its mean
};

/// The most probable coefficients ≥ 0.
struct StepFit {
  StepCoefficients coefficients;
  /// Of the coefficients as if none could be at a bound; the prior alone where the rows say
  /// nothing.
  StepCovariance covariance;
  double residual_scale = 0;  ///< robust standard deviation of error·√weight
  double cost = 0;            ///< mean Huber loss of error·√weight ÷ residual_scale
};

/// constant + (weights^p + (token·(P + D))^p)^(1/p) + decode·D + decode_context·C +
/// prefill_context·A + chunk·K, for p = `norm` ≥ 1; infinity takes the longer of the two.
Eigen::VectorXd step_times_us(const Eigen::MatrixXd& batches, const StepCoefficients& coefficients,
                              double norm);

/// Fits the step time with a Huber loss, robust against up to about a quarter of outliers. At least
/// two rows need a positive weight. A `start` near the solution, such as that of similar rows,
/// saves the search for the ratio of weights to token.
StepFit fit_steps(const StepRows& rows, const StepPrior& prior, double norm,
                  const std::optional<StepCoefficients>& start = std::nullopt);

}  // namespace spillway::numerics
