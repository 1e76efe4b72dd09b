#include "numerics/step_regression.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "numerics/nonnegative_least_squares.h"
#include "sim/error.h"
#include "sim/math.h"

namespace spillway::numerics {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr Index kWeights = 1;
constexpr Index kToken = 2;

/// Errors beyond this many standard deviations count with their magnitude: 95% efficiency for
/// normal ones (Huber, "Robust Estimation of a Location Parameter", 1964).
constexpr double kHuber = 1.345;
/// Standard deviation of a normal variable ÷ the median of its magnitude.
constexpr double kSdPerMedian = 1.482602218505602;
/// Steps are never trusted more than this, relative to their median: with exact rows the prior
/// still decides what they leave open.
constexpr double kLeastScale = 1e-5;
constexpr int kScaleRounds = 8;
constexpr int kRatios = 12;
constexpr int kRefinements = 3;
constexpr Index kRowsToSearch = 4000;
constexpr int kMostSteps = 100;
constexpr double kTolerance = 1e-11;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double norm_of(double a, double b, double p) {
  const double longer = std::max(a, b);
  if (std::isinf(p) || longer == 0) return longer;
  if (p == 1) return a + b;
  return longer * sim::pow(1 + sim::pow(std::min(a, b) / longer, p), 1 / p);
}

/// Derivative of the norm in its first argument: (a ÷ norm)^(p − 1).
double slope_of(double a, double b, double p) {
  if (p == 1) return 1;
  if (std::isinf(p)) return a > b ? 1 : 0;
  const double norm = norm_of(a, b, p);
  return norm > 0 ? sim::pow(a / norm, p - 1) : 0;
}

/// The posterior of rows whose weights are positive.
class Problem {
 public:
  Problem(const StepRows& rows, StepPrior prior, double norm)
      : prior_(std::move(prior)), norm_(norm), root_(rows.weights.cwiseSqrt()) {
    tokens_ = rows.batches.col(0) + rows.batches.col(1);
    columns_.resize(rows.step_us.size(), kStepCoefficients);
    columns_.col(0).setOnes();
    columns_.rightCols(4) = rows.batches.rightCols(4);
    columns_.col(kToken) = tokens_;
    y_ = rows.step_us;
    const VectorXd scaled = root_.cwiseProduct(y_);
    least_scale_ = kLeastScale * median_of({scaled.begin(), scaled.end()});
    scale_ = least_scale_;
  }

  double scale() const { return scale_; }
  void set_scale(double scale) { scale_ = std::max(scale, least_scale_); }

  VectorXd errors(const StepCoefficients& at) const {
    VectorXd fitted = columns_.col(0) * at[0];
    for (Index i = 0; i < fitted.size(); ++i) {
      fitted[i] += norm_of(at[kWeights], at[kToken] * tokens_[i], norm_);
    }
    fitted += columns_.rightCols(4) * at.tail<4>();
    return root_.cwiseProduct(y_ - fitted);
  }

  double robust_scale(const StepCoefficients& at) const {
    const VectorXd e = errors(at).cwiseAbs();
    return std::max(least_scale_, kSdPerMedian * median_of({e.begin(), e.end()}));
  }

  double huber(const StepCoefficients& at) const {
    double sum = 0;
    for (const double e : errors(at)) {
      const double u = std::abs(e) / scale_;
      sum += u <= kHuber ? 0.5 * u * u : kHuber * (u - 0.5 * kHuber);
    }
    return sum;
  }

  /// Negative logarithm of the posterior.
  double objective(const StepCoefficients& at) const {
    double sum = huber(at);
    for (Index j = 0; j < kStepCoefficients; ++j) {
      if (prior_.width[j] == 0) continue;
      const double off = (at[j] - prior_.mean[j]) / prior_.width[j];
      sum += 0.5 * off * off;
    }
    return sum;
  }

  /// Derivatives of the rows' step times. The norm is homogeneous: its linearization is exact along
  /// a ray, without a constant.
  MatrixXd jacobian(double weights_us, double token_us) const {
    MatrixXd columns = columns_;
    for (Index i = 0; i < columns.rows(); ++i) {
      const double tokens_us = token_us * tokens_[i];
      columns(i, kWeights) = slope_of(weights_us, tokens_us, norm_);
      columns(i, kToken) = norm_ == 1 ? tokens_[i]
                           : std::isinf(norm_)
                               ? (weights_us > tokens_us ? 0 : tokens_[i])
                               : slope_of(tokens_us, weights_us, norm_) * tokens_[i];
    }
    return columns;
  }

  /// The minimum of the objective with these columns, and with the losses of the errors at `at` as
  /// weighted squares. `ratio`: of weights to token, if their columns are joined at it.
  StepCoefficients minimum(const MatrixXd& columns, const VectorXd& errors,
                           std::optional<double> ratio = std::nullopt) const {
    std::vector<Index> free;
    VectorXd rest = y_;
    for (Index j = 0; j < kStepCoefficients; ++j) {
      if (prior_.width[j] > 0) {
        free.push_back(j);
      } else {
        rest -= columns.col(j) * prior_.mean[j];
      }
    }
    const Index n = y_.size();
    const auto count = static_cast<Index>(free.size());
    MatrixXd a(n, count + 1);
    for (Index k = 0; k < count; ++k) {
      const Index j = free[static_cast<std::size_t>(k)];
      a.col(k) = columns.col(j) * prior_.width[j];
    }
    a.col(count) = rest;
    for (Index i = 0; i < n; ++i) {
      const double u = std::abs(errors[i]) / scale_;
      a.row(i) *= root_[i] / scale_ * std::sqrt(u <= kHuber ? 1 : kHuber / u);
    }
    // Only the triangle of the rows matters; the prior adds a row for each coefficient.
    const Index height = std::min(n, count + 1);
    const MatrixXd r = a.householderQr().matrixQR().topRows(height).triangularView<Eigen::Upper>();
    MatrixXd left = MatrixXd::Zero(height + count, count);
    VectorXd right = VectorXd::Zero(height + count);
    left.topRows(height) = r.leftCols(count);
    right.head(height) = r.col(count);
    for (Index k = 0; k < count; ++k) {
      const Index j = free[static_cast<std::size_t>(k)];
      left(height + k, k) = 1;
      right[height + k] = prior_.mean[j] / prior_.width[j];
    }
    if (ratio) join(left, free, *ratio);
    const VectorXd x = nonnegative_least_squares(left, right);
    StepCoefficients found = prior_.mean;
    for (Index k = 0; k < count; ++k) {
      const Index j = free[static_cast<std::size_t>(k)];
      found[j] = x[k] * prior_.width[j];
    }
    if (ratio) found[kWeights] = *ratio * found[kToken];
    return found;
  }

  StepCovariance covariance(const StepCoefficients& at) const {
    const VectorXd e = errors(at) / scale_;
    double squares = 0;
    double inside = 0;
    for (const double u : e) {
      squares += std::min(u * u, kHuber * kHuber);
      inside += std::abs(u) <= kHuber ? 1 : 0;
    }
    const auto n = static_cast<double>(e.size());
    const double spread = scale_ * std::sqrt(squares / std::max(1.0, n - kStepCoefficients)) /
                          std::max(inside / n, 0.1);
    const VectorXd root = root_ / std::max(spread, least_scale_);
    std::vector<Index> free;
    for (Index j = 0; j < kStepCoefficients; ++j) {
      if (prior_.width[j] > 0) free.push_back(j);
    }
    const auto count = static_cast<Index>(free.size());
    const MatrixXd columns = jacobian(at[kWeights], at[kToken]);
    MatrixXd a = MatrixXd::Zero(e.size() + count, count);
    for (Index k = 0; k < count; ++k) {
      const Index j = free[static_cast<std::size_t>(k)];
      a.col(k).head(e.size()) = root.cwiseProduct(columns.col(j)) * prior_.width[j];
      a(e.size() + k, k) = 1;
    }
    const MatrixXd r = a.householderQr().matrixQR().topRows(count).triangularView<Eigen::Upper>();
    const MatrixXd inverse =
        r.triangularView<Eigen::Upper>().solve(MatrixXd::Identity(count, count));
    const MatrixXd scaled = inverse * inverse.transpose();
    StepCovariance found = StepCovariance::Zero();
    for (Index k = 0; k < count; ++k) {
      for (Index l = 0; l < count; ++l) {
        const Index i = free[static_cast<std::size_t>(k)];
        const Index j = free[static_cast<std::size_t>(l)];
        found(i, j) = scaled(k, l) * prior_.width[i] * prior_.width[j];
      }
    }
    return found;
  }

  const VectorXd& tokens() const { return tokens_; }

 private:
  /// Replaces the column of `token` by that of token and weights together, and drops the other.
  void join(MatrixXd& left, const std::vector<Index>& free, double ratio) const {
    const auto weights = std::find(free.begin(), free.end(), kWeights) - free.begin();
    const auto token = std::find(free.begin(), free.end(), kToken) - free.begin();
    left.col(token) += left.col(weights) * (ratio * prior_.width[kToken] / prior_.width[kWeights]);
    left.col(weights).setZero();
  }

  StepPrior prior_;
  double norm_;
  VectorXd root_;  // of the weights
  VectorXd tokens_;
  MatrixXd columns_;
  VectorXd y_;
  double least_scale_;
  double scale_;
};

/// Coefficients for a given ratio of weights to token, for which the problem is linear.
StepCoefficients at_ratio(Problem& problem, double ratio) {
  const MatrixXd columns = problem.jacobian(ratio, 1);
  VectorXd errors = VectorXd::Zero(columns.rows());
  StepCoefficients found;
  for (int round = 0; round < kScaleRounds; ++round) {
    found = problem.minimum(columns, errors, ratio);
    errors = problem.errors(found);
    problem.set_scale(problem.robust_scale(found));
  }
  return found;
}

/// The best coefficients for the best of some ratios of weights to token.
StepCoefficients search_ratio(Problem problem) {
  const VectorXd& tokens = problem.tokens();
  const double most = std::max(1.0, tokens.maxCoeff());
  double least = most;
  for (const double count : tokens) {
    if (count > 0) least = std::min(least, count);
  }
  struct Trial {
    double log_ratio;
    double scale;
    StepCoefficients found;
  };
  std::vector<Trial> trials;
  const auto attempt = [&](double log_ratio) {
    problem.set_scale(0);
    const StepCoefficients found = at_ratio(problem, sim::exp(log_ratio));
    trials.push_back({log_ratio, problem.robust_scale(found), found});
  };
  const auto best = [&] {
    double smallest = std::numeric_limits<double>::infinity();
    for (const Trial& trial : trials) smallest = std::min(smallest, trial.scale);
    problem.set_scale(smallest);
    return *std::min_element(trials.begin(), trials.end(), [&](const Trial& a, const Trial& b) {
      return problem.objective(a.found) < problem.objective(b.found);
    });
  };
  const double low = sim::log(least / 2);
  const double high = sim::log(most * 2);
  double width = (high - low) / (kRatios - 1);
  for (int k = 0; k < kRatios; ++k) attempt(low + k * width);
  for (int round = 0; round < kRefinements; ++round) {
    const double middle = best().log_ratio;
    width /= 3;
    for (const int k : {-2, -1, 1, 2}) attempt(middle + k * width);
  }
  return best().found;
}

/// Gauss–Newton with non-negative steps and the losses as weighted squares.
StepCoefficients refine(const Problem& problem, StepCoefficients at) {
  double value = problem.objective(at);
  for (int step = 0; step < kMostSteps; ++step) {
    const StepCoefficients target =
        problem.minimum(problem.jacobian(at[kWeights], at[kToken]), problem.errors(at));
    double share = 1;
    StepCoefficients moved = target;
    double there = problem.objective(moved);
    while (there > value && share > 1e-6) {
      share /= 2;
      moved = at + share * (target - at);
      there = problem.objective(moved);
    }
    if (!(there < value)) break;
    const double change =
        ((moved - at).array().abs() / (moved.array().abs() + at.array().abs() + 1e-12)).maxCoeff();
    at = moved;
    const double gain = value - there;
    value = there;
    if (change < kTolerance || gain < kTolerance * kTolerance * (1 + value)) break;
  }
  return at;
}

StepRows checked(const StepRows& rows, const StepPrior& prior, double norm) {
  const Index n = rows.step_us.size();
  if (rows.batches.cols() != kBatchColumns) throw sim::UsageError("batches need 5 columns");
  if (rows.batches.rows() != n || rows.weights.size() != n) {
    throw sim::UsageError("batches, step times and weights differ in length");
  }
  const bool is_valid = rows.batches.allFinite() && rows.step_us.allFinite() &&
                        rows.weights.allFinite() && (rows.batches.array() >= 0).all() &&
                        (rows.step_us.array() > 0).all() && (rows.weights.array() >= 0).all();
  if (!is_valid) {
    throw sim::UsageError("batches and weights must be >= 0, step times > 0, and all finite");
  }
  if (!(norm >= 1)) throw sim::UsageError("the norm must be >= 1");
  if (!prior.mean.allFinite() || !prior.width.allFinite() || prior.mean.minCoeff() < 0 ||
      prior.width.minCoeff() < 0) {
    throw sim::UsageError("means and widths of the prior must be >= 0");
  }
  std::vector<Index> counted;
  for (Index i = 0; i < n; ++i) {
    if (rows.weights[i] > 0) counted.push_back(i);
  }
  if (counted.size() < 2) throw sim::UsageError("at least two steps of positive weight are needed");
  return {rows.batches(counted, Eigen::all), rows.step_us(counted), rows.weights(counted)};
}

/// About as many rows as the search needs, spread over the durations: rare long steps stay.
StepRows some_of(const StepRows& rows) {
  const Index n = rows.step_us.size();
  if (n <= kRowsToSearch) return rows;
  std::vector<Index> order(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return rows.step_us[a] < rows.step_us[b]; });
  std::vector<Index> chosen;
  chosen.reserve(static_cast<std::size_t>(kRowsToSearch));
  for (Index k = 0; k < kRowsToSearch; ++k) {
    chosen.push_back(order[static_cast<std::size_t>(k * n / kRowsToSearch)]);
  }
  return {rows.batches(chosen, Eigen::all), rows.step_us(chosen), rows.weights(chosen)};
}

StepCoefficients first_guess(const StepRows& rows, const StepPrior& prior, double norm) {
  const bool is_linear = norm == 1 || prior.width[kWeights] == 0 || prior.width[kToken] == 0;
  if (!is_linear) return search_ratio(Problem(some_of(rows), prior, norm));
  Problem problem(some_of(rows), prior, norm);
  StepCoefficients at = prior.mean;
  VectorXd errors = VectorXd::Zero(problem.tokens().size());
  for (int round = 0; round < kScaleRounds; ++round) {
    at = problem.minimum(problem.jacobian(at[kWeights], at[kToken]), errors);
    errors = problem.errors(at);
    problem.set_scale(problem.robust_scale(at));
  }
  return at;
}

}  // namespace

VectorXd step_times_us(const MatrixXd& batches, const StepCoefficients& coefficients, double norm) {
  if (batches.cols() != kBatchColumns) throw sim::UsageError("batches need 5 columns");
  VectorXd step_us = batches.rightCols(4) * coefficients.tail<4>();
  for (Index i = 0; i < step_us.size(); ++i) {
    const double tokens = batches(i, 0) + batches(i, 1);
    step_us[i] +=
        coefficients[0] + norm_of(coefficients[kWeights], coefficients[kToken] * tokens, norm);
  }
  return step_us;
}

StepFit fit_steps(const StepRows& rows, const StepPrior& prior, double norm,
                  const std::optional<StepCoefficients>& start) {
  const StepRows counted = checked(rows, prior, norm);
  Problem problem(counted, prior, norm);
  StepCoefficients at = start ? *start : first_guess(counted, prior, norm);
  for (int round = 0; round < kScaleRounds; ++round) {
    const double scale = problem.robust_scale(at);
    problem.set_scale(scale);
    at = refine(problem, at);
    if (std::abs(problem.robust_scale(at) - scale) <= 1e-4 * scale) break;
  }
  return {at, problem.covariance(at), problem.scale(),
          problem.huber(at) / static_cast<double>(counted.step_us.size())};
}

}  // namespace spillway::numerics
