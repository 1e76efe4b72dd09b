#include "search/gaussian_process.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <utility>

#include "search/bounded_minimum.h"
#include "sim/error.h"

namespace spillway::search {

namespace {

using Eigen::ArrayXd;
using Eigen::Index;
using Eigen::Lower;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kMinLengthScale = 0.02;
constexpr double kMaxLengthScale = 50.0;
constexpr double kMinSignalVariance = 1e-3;
constexpr double kMaxSignalVariance = 1e3;
constexpr double kMinExtraNoise = 1e-8;
constexpr double kMaxExtraNoise = 20.0;
// Number of observations that decide between the starts; more would cost time and rarely change the
// choice.
constexpr Index kDecidingObservations = 100;
// Minimum gain of a step in log density, relative to 1 + |log density|.
constexpr double kValueTolerance = 1e-5;
constexpr double kCoarseValueTolerance = 1e-4;
// Priors for parts of the observations if there are none for all.
constexpr Priors kVague{.log_length_scale_mean = -0.7,
                        .log_length_scale_sd = 1.0,
                        .log_signal_variance_mean = 0.0,
                        .log_signal_variance_sd = 1.0,
                        .log_extra_noise_sd = std::numeric_limits<double>::infinity()};
constexpr double kStartingLengthScales[] = {0.5, 0.15, 1.5};
constexpr double kSmallestVariance = 1e-14;  // relative to the signal's

// Squared distance of points[rows, …] to one point, each coordinate in units of its length scale.
template <class Points, class Point>
ArrayXd squared_distances(const Points& points, const Point& point,
                          const std::vector<bool>& categorical, const VectorXd& length_scales) {
  ArrayXd sum = ArrayXd::Zero(points.rows());
  for (Index d = 0; d < points.cols(); ++d) {
    const double precision = 1.0 / (length_scales[d] * length_scales[d]);
    if (categorical[static_cast<std::size_t>(d)]) {
      sum += (points.col(d).array() != point[d]).template cast<double>() * precision;
    } else {
      sum += (points.col(d).array() - point[d]).square() * precision;
    }
  }
  return sum;
}

/// Covariance (lower triangle) of the signal, and the matrices for its slopes.
struct Kernel {
  MatrixXd covariance;
  MatrixXd slope;  ///< −2 × derivative of the covariance in the squared distance
};

ArrayXd matern(const ArrayXd& squared, double signal_variance) {
  const ArrayXd r = (5.0 * squared).sqrt();
  return signal_variance * (1.0 + r + r.square() / 3.0) * (-r).exp();
}

void fill(Kernel& kernel, const Observations& observations,
          const Hyperparameters& hyperparameters) {
  const Index n = observations.points.rows();
  kernel.covariance.resize(n, n);
  kernel.slope.resize(n, n);
  for (Index j = 0; j < n; ++j) {
    const Index rows = n - j;
    const ArrayXd r =
        (5.0 * squared_distances(observations.points.bottomRows(rows), observations.points.row(j),
                                 observations.categorical, hyperparameters.length_scales))
            .sqrt();
    const ArrayXd decay = hyperparameters.signal_variance * (-r).exp();
    kernel.covariance.col(j).tail(rows) = decay * (1.0 + r + r.square() / 3.0);
    kernel.slope.col(j).tail(rows) = (5.0 / 3.0) * decay * (1.0 + r);
  }
}

VectorXd noise_of(const Observations& observations, const Hyperparameters& hyperparameters) {
  return observations.noise_variance.array() + hyperparameters.extra_noise_variance;
}

/// Replaces the lower triangle by its inverse, recursively by halves, so that most of the work is
/// matrix products.
void invert_lower(Eigen::Ref<MatrixXd> lower) {
  const Index n = lower.rows();
  if (n <= 32) {
    MatrixXd inverse = MatrixXd::Identity(n, n);
    lower.triangularView<Lower>().solveInPlace(inverse);
    lower.triangularView<Lower>() = inverse;
    return;
  }
  const Index half = n / 2;
  const Index rest = n - half;
  invert_lower(lower.topLeftCorner(half, half));
  invert_lower(lower.bottomRightCorner(rest, rest));
  const MatrixXd right =
      lower.bottomLeftCorner(rest, half) * lower.topLeftCorner(half, half).triangularView<Lower>();
  lower.bottomLeftCorner(rest, half).noalias() =
      -(lower.bottomRightCorner(rest, rest).triangularView<Lower>() * right);
}

/// Lower triangle of −Lᵀ·L for a lower triangular L whose upper part is 0.
void fill_with_minus_gram(MatrixXd& product, const MatrixXd& lower) {
  constexpr Index kBlock = 64;
  const Index n = lower.rows();
  product.resize(n, n);
  for (Index j = 0; j < n; j += kBlock) {
    const Index width = std::min(kBlock, n - j);
    for (Index i = j; i < n; i += kBlock) {
      const Index height = std::min(kBlock, n - i);
      product.block(i, j, height, width).noalias() =
          -lower.block(i, i, n - i, height).transpose() * lower.block(i, j, n - i, width);
    }
  }
}

/// Σ over all ordered pairs of symmetric weights × squared distance in one coordinate.
double weighted_distances(const MatrixXd& weights, const Eigen::Ref<const VectorXd>& coordinate,
                          bool categorical) {
  double sum = 0.0;
  const Index n = coordinate.size();
  for (Index j = 0; j + 1 < n; ++j) {
    const Index rows = n - j - 1;
    const auto below = weights.col(j).tail(rows).array();
    const auto others = coordinate.tail(rows).array();
    sum += categorical ? (below * (others != coordinate[j]).cast<double>()).sum()
                       : (below * (others - coordinate[j]).square()).sum();
  }
  return 2.0 * sum;
}

/// Log marginal likelihoods of the same observations, one after another: the matrices are reused,
/// because new ones would cost page faults.
class Likelihood {
 public:
  explicit Likelihood(const Observations& observations) : observations_(observations) {}

  /// -inf if the covariance is singular. `profile_mean` replaces the mean by the most likely one.
  double value(Hyperparameters& hyperparameters, bool profile_mean) {
    const Index n = observations_.points.rows();
    fill(kernel_, observations_, hyperparameters);
    factor_ = kernel_.covariance;
    factor_.diagonal() += noise_of(observations_, hyperparameters);
    const Eigen::LLT<Eigen::Ref<MatrixXd>> llt(factor_);
    if (llt.info() != Eigen::Success) return -std::numeric_limits<double>::infinity();
    if (profile_mean) {
      const VectorXd precision = llt.solve(VectorXd::Ones(n));
      hyperparameters.mean = precision.dot(observations_.values) / precision.sum();
    }
    const VectorXd centred = observations_.values.array() - hyperparameters.mean;
    weights_ = llt.solve(centred);
    return -0.5 * centred.dot(weights_) - factor_.diagonal().array().log().sum() -
           0.5 * static_cast<double>(n) * std::log(2.0 * std::numbers::pi);
  }

  /// The gradient at the hyperparameters of the last `value`, which was finite. To be called at
  /// most once.
  VectorXd gradient(const Hyperparameters& hyperparameters) {
    const Index n = observations_.points.rows();
    const Index dimensions = observations_.points.cols();
    VectorXd gradient(dimensions + 2);
    // ½ Σ (w wᵀ − K⁻¹) ∘ ∂K; only lower triangles are computed.
    factor_.triangularView<Eigen::StrictlyUpper>().setZero();
    invert_lower(factor_);
    fill_with_minus_gram(pull_, factor_);
    for (Index j = 0; j < n; ++j) pull_.col(j).tail(n - j) += weights_[j] * weights_.tail(n - j);
    double signal = 0.0;
    for (Index j = 0; j < n; ++j) {
      signal += pull_(j, j) * kernel_.covariance(j, j) +
                2.0 * pull_.col(j).tail(n - j - 1).dot(kernel_.covariance.col(j).tail(n - j - 1));
    }
    gradient[dimensions] = 0.5 * signal;
    gradient[dimensions + 1] = 0.5 * pull_.diagonal().sum() * hyperparameters.extra_noise_variance;
    for (Index j = 0; j < n; ++j) {
      pull_.col(j).tail(n - j).array() *= kernel_.slope.col(j).tail(n - j).array();
    }
    for (Index d = 0; d < dimensions; ++d) {
      const double scale = hyperparameters.length_scales[d];
      gradient[d] = 0.5 / (scale * scale) *
                    weighted_distances(pull_, observations_.points.col(d),
                                       observations_.categorical[static_cast<std::size_t>(d)]);
    }
    return gradient;
  }

 private:
  const Observations& observations_;
  Kernel kernel_;
  MatrixXd factor_;   ///< lower Cholesky factor of the covariance of the values; then its inverse
  VectorXd weights_;  ///< inverse covariance × (values − mean)
  MatrixXd pull_;     ///< twice the slope of the likelihood in each covariance
};

/// Hyperparameters as one vector of logarithms, in the order of the gradient. The last one is that
/// of the sum of the extra noise and a known noise, if given: alone, the logarithm of the extra
/// noise would drift toward −inf and return as slowly.
struct Coordinates {
  double known_noise_variance = 0.0;

  VectorXd of(const Hyperparameters& hyperparameters) const {
    const Index dimensions = hyperparameters.length_scales.size();
    VectorXd vector(dimensions + 2);
    vector.head(dimensions) = hyperparameters.length_scales.array().log();
    vector[dimensions] = std::log(hyperparameters.signal_variance);
    vector[dimensions + 1] = of_noise(hyperparameters.extra_noise_variance);
    return vector;
  }

  double of_noise(double extra_noise_variance) const {
    return std::log(extra_noise_variance + known_noise_variance);
  }

  Hyperparameters at(const VectorXd& vector) const {
    const Index dimensions = vector.size() - 2;
    return {vector.head(dimensions).array().exp(), std::exp(vector[dimensions]),
            std::exp(vector[dimensions + 1]) - known_noise_variance, 0.0};
  }

  /// Derivative of the extra noise's logarithm by its coordinate.
  double slope(double extra_noise_variance) const {
    return 1.0 + known_noise_variance / extra_noise_variance;
  }
};

struct NormalPrior {
  VectorXd mean;
  VectorXd sd;
};

NormalPrior prior_of(const Priors& priors, Index dimensions) {
  NormalPrior prior{VectorXd(dimensions + 2), VectorXd(dimensions + 2)};
  prior.mean.head(dimensions)
      .setConstant(priors.log_length_scale_mean + 0.5 * std::log(static_cast<double>(dimensions)));
  prior.sd.head(dimensions).setConstant(priors.log_length_scale_sd);
  prior.mean[dimensions] = priors.log_signal_variance_mean;
  prior.sd[dimensions] = priors.log_signal_variance_sd;
  prior.mean[dimensions + 1] = priors.log_extra_noise_mean;
  prior.sd[dimensions + 1] = priors.log_extra_noise_sd;
  return prior;
}

/// Precision of a search for a maximum.
struct Effort {
  int max_evaluations;
  double value_tolerance;
};

/// Minus the log posterior density of hyperparameters, up to a constant.
class Objective {
 public:
  Objective(const Observations& observations, const std::optional<Priors>& priors,
            const Coordinates& coordinates)
      : dimensions_(observations.points.cols()),
        likelihood_(observations),
        coordinates_(coordinates) {
    if (priors) prior_ = prior_of(*priors, dimensions_);
  }

  double operator()(const VectorXd& point, VectorXd& gradient) {
    Hyperparameters hyperparameters = coordinates_.at(point);
    double value = -likelihood_.value(hyperparameters, true);
    if (!std::isfinite(value)) return value;
    gradient = -likelihood_.gradient(hyperparameters);
    gradient[gradient.size() - 1] *= coordinates_.slope(hyperparameters.extra_noise_variance);
    if (prior_) {
      const ArrayXd z = (point - prior_->mean).array() / prior_->sd.array();
      value += 0.5 * z.square().sum();
      gradient.array() += z / prior_->sd.array();
    }
    return value;
  }

  /// The hyperparameters of a point, with the most likely mean.
  Hyperparameters hyperparameters(const VectorXd& point) {
    Hyperparameters found = coordinates_.at(point);
    likelihood_.value(found, true);
    return found;
  }

  Index dimensions() const { return dimensions_; }
  const Coordinates& coordinates() const { return coordinates_; }

 private:
  Index dimensions_;
  Likelihood likelihood_;
  Coordinates coordinates_;
  std::optional<NormalPrior> prior_;
};

Minimum most_probable_from(const Minimum& start, Objective& objective, const Effort& effort) {
  const Coordinates& coordinates = objective.coordinates();
  const Index size = start.point.size();
  VectorXd lower = VectorXd::Constant(size, std::log(kMinLengthScale));
  VectorXd upper = VectorXd::Constant(size, std::log(kMaxLengthScale));
  lower.tail(2) << std::log(kMinSignalVariance), coordinates.of_noise(kMinExtraNoise);
  upper.tail(2) << std::log(kMaxSignalVariance), coordinates.of_noise(kMaxExtraNoise);
  return bounded_minimum(std::ref(objective), start.point, lower, upper,
                         {.max_evaluations = effort.max_evaluations,
                          .gradient_tolerance = 1e-2,
                          .value_tolerance = effort.value_tolerance,
                          .hessian = start.hessian});
}

/// The most probable hyperparameters, as coordinates: found from `from`, or the best result of
/// several starts.
Minimum most_probable(Objective& objective, const std::optional<Minimum>& from,
                      const Effort& effort) {
  if (from) return most_probable_from(*from, objective, effort);
  const Index dimensions = objective.dimensions();
  Minimum best;
  for (const double length_scale : kStartingLengthScales) {
    const double scaled = length_scale * std::sqrt(static_cast<double>(dimensions));
    const Minimum start{.point = objective.coordinates().of(
                            {VectorXd::Constant(dimensions, scaled), 1.0, 0.01, 0.0})};
    Minimum found = most_probable_from(start, objective, effort);
    if (best.point.size() == 0 || found.value < best.value) best = std::move(found);
  }
  return best;
}

/// A part of the observations, evenly spread over their order.
Observations part_of(const Observations& observations, Index size) {
  std::vector<Index> rows;
  rows.reserve(static_cast<std::size_t>(size));
  for (Index i = 0; i < size; ++i) rows.push_back(i * observations.points.rows() / size);
  return {observations.points(rows, Eigen::all), observations.values(rows),
          observations.noise_variance(rows), observations.categorical};
}

/// A rough maximum from parts of the observations, each twice as large as the previous one:
/// doubling them multiplies the cost of a step by eight, so most of the steps are done on small
/// parts. The curvature is the one expected with all observations. Unset if there are few.
std::optional<Minimum> roughly_most_probable(const Observations& observations,
                                             const FitOptions& options,
                                             const Coordinates& coordinates) {
  const Index n = observations.points.rows();
  // Parameters that a part leaves undetermined must not drift far from the final maximum.
  const Priors priors = options.priors.value_or(kVague);
  std::optional<Minimum> found;
  for (Index size = kDecidingObservations, next = 0; size < n; size = next) {
    const Observations part = part_of(observations, size);
    Objective objective(part, priors, coordinates);
    found = most_probable(objective, found, {options.max_evaluations, kCoarseValueTolerance});
    next = 4 * size <= n ? 2 * size : n;
    found->hessian *= static_cast<double>(next) / static_cast<double>(size);
  }
  return found;
}

void check(const Observations& observations) {
  const Index n = observations.points.rows();
  if (n == 0 || observations.points.cols() == 0)
    throw sim::UsageError("a Gaussian process needs at least one observation and one coordinate");
  if (observations.values.size() != n || observations.noise_variance.size() != n)
    throw sim::UsageError("points, values and noise variances differ in number");
  if (std::ssize(observations.categorical) != observations.points.cols())
    throw sim::UsageError("`categorical` must have one entry per coordinate");
  if (!observations.points.allFinite() || !observations.values.allFinite() ||
      !observations.noise_variance.allFinite() || observations.noise_variance.minCoeff() < 0.0)
    throw sim::UsageError("points, values and noise variances must be finite, the last >= 0");
}

void check(const Observations& observations, const Hyperparameters& hyperparameters) {
  check(observations);
  if (hyperparameters.length_scales.size() != observations.points.cols())
    throw sim::UsageError("there must be one length scale per coordinate");
  if (!(hyperparameters.length_scales.minCoeff() > 0.0) ||
      !(hyperparameters.signal_variance > 0.0) || !(hyperparameters.extra_noise_variance >= 0.0))
    throw sim::UsageError("length scales and signal variance must be > 0, extra noise >= 0");
}

}  // namespace

LogLikelihood log_marginal_likelihood(const Observations& observations,
                                      const Hyperparameters& hyperparameters) {
  check(observations, hyperparameters);
  Hyperparameters copy = hyperparameters;
  Likelihood likelihood(observations);
  const double value = likelihood.value(copy, false);
  const Index size = hyperparameters.length_scales.size() + 2;
  return {value, std::isfinite(value) ? likelihood.gradient(copy) : VectorXd::Zero(size)};
}

Hyperparameters fit(const Observations& observations, const FitOptions& options,
                    const std::optional<Hyperparameters>& warm_start) {
  check(observations);
  // A prior of the extra noise's logarithm keeps it from −inf.
  const Coordinates coordinates{options.priors ? 0.0
                                               : std::min(observations.noise_variance.mean(), 1.0)};
  std::optional<Minimum> start;
  if (warm_start) {
    check(observations, *warm_start);
    start = Minimum{.point = coordinates.of(*warm_start)};
  } else {
    start = roughly_most_probable(observations, options, coordinates);
  }
  Objective objective(observations, options.priors, coordinates);
  return objective.hyperparameters(
      most_probable(objective, start, {options.max_evaluations, kValueTolerance}).point);
}

GaussianProcess::GaussianProcess(Observations observations, Hyperparameters hyperparameters)
    : observations_(std::move(observations)), hyperparameters_(std::move(hyperparameters)) {
  check(observations_, hyperparameters_);
  Kernel kernel;
  fill(kernel, observations_, hyperparameters_);
  factor_ = std::move(kernel.covariance);
  factor_.diagonal() += noise_of(observations_, hyperparameters_);
  const Eigen::LLT<Eigen::Ref<MatrixXd>> llt(factor_);
  if (llt.info() != Eigen::Success) {
    throw sim::UsageError(
        "the covariance is singular: points repeat without noise; give an extra noise variance");
  }
  factor_.triangularView<Eigen::StrictlyUpper>().setZero();
  weights_ = llt.solve(VectorXd(observations_.values.array() - hyperparameters_.mean));
}

Posterior GaussianProcess::predict(const MatrixXd& points) const {
  if (points.cols() != observations_.points.cols())
    throw sim::UsageError("points must have as many coordinates as the observations");
  MatrixXd cross(observations_.points.rows(), points.rows());
  for (Index j = 0; j < points.rows(); ++j) {
    cross.col(j) =
        matern(squared_distances(observations_.points, points.row(j), observations_.categorical,
                                 hyperparameters_.length_scales),
               hyperparameters_.signal_variance);
  }
  Posterior posterior;
  posterior.mean = (cross.transpose() * weights_).array() + hyperparameters_.mean;
  factor_.triangularView<Lower>().solveInPlace(cross);
  posterior.variance =
      (hyperparameters_.signal_variance - cross.colwise().squaredNorm().transpose().array())
          .max(kSmallestVariance * hyperparameters_.signal_variance);
  return posterior;
}

PointPosterior GaussianProcess::predict_with_gradient(const VectorXd& point) const {
  const Index dimensions = point.size();
  const double signal = hyperparameters_.signal_variance;
  const ArrayXd r = (5.0 * squared_distances(observations_.points, point, observations_.categorical,
                                             hyperparameters_.length_scales))
                        .sqrt();
  const ArrayXd decay = signal * (-r).exp();
  const VectorXd cross = decay * (1.0 + r + r.square() / 3.0);
  const ArrayXd slope = (5.0 / 3.0) * decay * (1.0 + r);
  VectorXd solved = factor_.triangularView<Lower>().solve(cross);
  const double variance = signal - solved.squaredNorm();
  factor_.triangularView<Lower>().adjoint().solveInPlace(solved);
  PointPosterior posterior{hyperparameters_.mean + cross.dot(weights_),
                           std::max(variance, kSmallestVariance * signal),
                           VectorXd::Zero(dimensions), VectorXd::Zero(dimensions)};
  for (Index d = 0; d < dimensions; ++d) {
    if (observations_.categorical[static_cast<std::size_t>(d)]) continue;
    const double scale = hyperparameters_.length_scales[d];
    const VectorXd change =
        slope * (observations_.points.col(d).array() - point[d]) / (scale * scale);
    posterior.mean_gradient[d] = change.dot(weights_);
    posterior.variance_gradient[d] = -2.0 * change.dot(solved);
  }
  return posterior;
}

VectorXd GaussianProcess::fitted() const {
  // K·w = (K + noise)·w − noise·w, and the first of these is values − mean.
  return observations_.values.array() -
         noise_of(observations_, hyperparameters_).array() * weights_.array();
}

void GaussianProcess::believe(const VectorXd& point, double noise_variance) {
  if (point.size() != observations_.points.cols())
    throw sim::UsageError("points must have as many coordinates as the observations");
  const Index n = observations_.points.rows();
  const VectorXd cross =
      matern(squared_distances(observations_.points, point, observations_.categorical,
                               hyperparameters_.length_scales),
             hyperparameters_.signal_variance);
  const VectorXd row = factor_.triangularView<Lower>().solve(cross);
  const double own = hyperparameters_.signal_variance + noise_variance +
                     hyperparameters_.extra_noise_variance - row.squaredNorm();
  const double mean = hyperparameters_.mean + cross.dot(weights_);

  factor_.conservativeResize(n + 1, n + 1);
  factor_.row(n).head(n) = row;
  factor_.col(n).head(n).setZero();
  factor_(n, n) = std::sqrt(std::max(own, kSmallestVariance * hyperparameters_.signal_variance));
  observations_.points.conservativeResize(n + 1, Eigen::NoChange);
  observations_.points.row(n) = point;
  observations_.values.conservativeResize(n + 1);
  observations_.values[n] = mean;
  observations_.noise_variance.conservativeResize(n + 1);
  observations_.noise_variance[n] = noise_variance;
  // The believed value adds no information, so the other weights do not change.
  weights_.conservativeResize(n + 1);
  weights_[n] = 0.0;
}

}  // namespace spillway::search
