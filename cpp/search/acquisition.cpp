#include "search/acquisition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "search/bounded_minimum.h"
#include "sim/error.h"

namespace spillway::search {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Below it, φ(z) + zΦ(z) would cancel.
constexpr double kTail = -2.0;
constexpr int kTailTerms = 80;
// Maximum number of values that an exchange tries: all of a coordinate, or those around the present
// one.
constexpr std::size_t kMostExchanges = 16;
constexpr int kExchangeRounds = 3;

const double kLogRootTwoPi = 0.5 * std::log(2.0 * std::numbers::pi);

double log_density(double z) { return -0.5 * z * z - kLogRootTwoPi; }
double distribution(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

/// c in Mills' ratio 1/(x + c) of the normal distribution, by Laplace's continued fraction
/// c = 1/(x + 2/(x + 3/(x + …))).
double tail_fraction(double x) {
  double fraction = 0.0;
  for (int i = kTailTerms; i >= 2; --i) fraction = i / (x + fraction);
  return 1.0 / (x + fraction);
}

struct LogWithSlope {
  double value;
  double slope;
};

/// log(φ(z) + zΦ(z)), the log of the expected improvement in standard deviations.
LogWithSlope log_improvement(double z) {
  if (z > kTail) {
    const double cumulative = distribution(z);
    const double improvement = std::exp(log_density(z)) + z * cumulative;
    return {std::log(improvement), cumulative / improvement};
  }
  const double c = tail_fraction(-z);
  return {log_density(z) + std::log(c / (c - z)), 1.0 / c};
}

/// log Φ(z).
LogWithSlope log_distribution(double z) {
  if (z > kTail) {
    const double cumulative = distribution(z);
    return {std::log(cumulative), std::exp(log_density(z)) / cumulative};
  }
  const double c = tail_fraction(-z);
  return {log_density(z) - std::log(c - z), c - z};
}

/// Adds the slope of `log`(z) for z = (level − mean)/sd.
void add_slope(VectorXd& gradient, const LogWithSlope& log, double z, double sd,
               const PointPosterior& posterior) {
  const VectorXd sd_gradient = posterior.variance_gradient / (2.0 * sd);
  gradient -= log.slope / sd * (posterior.mean_gradient + z * sd_gradient);
}

double nearest(const std::vector<double>& allowed, double value) {
  const auto above = std::lower_bound(allowed.begin(), allowed.end(), value);
  if (above == allowed.begin()) return *above;
  if (above == allowed.end() || value - *(above - 1) <= *above - value) return *(above - 1);
  return *above;
}

/// The values to try in place of the present one.
std::vector<double> exchanges(const std::vector<double>& allowed, double present) {
  std::size_t begin = 0;
  std::size_t end = allowed.size();
  if (allowed.size() > kMostExchanges) {
    const auto place = std::lower_bound(allowed.begin(), allowed.end(), present);
    const auto index = static_cast<std::size_t>(place - allowed.begin());
    begin = index - std::min(index, kMostExchanges / 2);
    end = std::min(allowed.size(), index + kMostExchanges / 2 + 1);
  }
  std::vector<double> others;
  for (std::size_t i = begin; i < end; ++i) {
    if (allowed[i] != present) others.push_back(allowed[i]);
  }
  return others;
}

}  // namespace

double log_expected_improvement(double mean, double sd, double best) {
  return std::log(sd) + log_improvement((best - mean) / sd).value;
}

double log_probability_of_feasibility(double mean, double sd) {
  return log_distribution(-mean / sd).value;
}

Acquisition::Acquisition(GaussianProcess objective, std::vector<GaussianProcess> constraints)
    : objective_(std::move(objective)),
      constraints_(std::move(constraints)),
      observed_(objective_.observations().points.rows()) {
  for (const GaussianProcess& constraint : constraints_) {
    const MatrixXd& its = constraint.observations().points;
    const MatrixXd& ours = objective_.observations().points;
    if (its.rows() != ours.rows() || its.cols() != ours.cols() || its != ours)
      throw sim::UsageError("objective and constraints must have observed the same points");
  }
  find_best();
}

void Acquisition::find_best() {
  const VectorXd means = objective_.fitted();
  VectorXd worst = VectorXd::Constant(means.size(), -kInfinity);
  for (const GaussianProcess& constraint : constraints_) {
    worst = worst.cwiseMax(constraint.fitted());
  }
  best_.reset();
  for (Index i = 0; i < means.size(); ++i) {
    if (worst[i] <= 0.0 && (!best_ || means[i] < *best_)) best_ = means[i];
  }
}

Index Acquisition::recommended() const {
  const VectorXd means = objective_.fitted().head(observed_);
  VectorXd feasibility = VectorXd::Zero(observed_);
  VectorXd worst = VectorXd::Constant(observed_, -kInfinity);
  for (const GaussianProcess& constraint : constraints_) {
    const Posterior posterior =
        constraint.predict(constraint.observations().points.topRows(observed_));
    worst = worst.cwiseMax(posterior.mean);
    for (Index i = 0; i < observed_; ++i) {
      feasibility[i] +=
          log_probability_of_feasibility(posterior.mean[i], std::sqrt(posterior.variance[i]));
    }
  }
  Index choice = -1;
  for (Index i = 0; i < observed_; ++i) {
    if (worst[i] <= 0.0 && (choice < 0 || means[i] < means[choice])) choice = i;
  }
  if (choice < 0) feasibility.maxCoeff(&choice);
  return choice;
}

void Acquisition::check_coordinates(Index number) const {
  if (number != objective_.observations().points.cols())
    throw sim::UsageError("points must have as many coordinates as the observations");
}

VectorXd Acquisition::values(const MatrixXd& points) const {
  check_coordinates(points.cols());
  VectorXd sum = VectorXd::Zero(points.rows());
  if (best_) {
    const Posterior posterior = objective_.predict(points);
    for (Index i = 0; i < points.rows(); ++i) {
      sum[i] +=
          log_expected_improvement(posterior.mean[i], std::sqrt(posterior.variance[i]), *best_);
    }
  }
  for (const GaussianProcess& constraint : constraints_) {
    const Posterior posterior = constraint.predict(points);
    for (Index i = 0; i < points.rows(); ++i) {
      sum[i] += log_probability_of_feasibility(posterior.mean[i], std::sqrt(posterior.variance[i]));
    }
  }
  return sum;
}

double Acquisition::value(const VectorXd& point, VectorXd& gradient) const {
  check_coordinates(point.size());
  double sum = 0.0;
  gradient.setZero(point.size());
  if (best_) {
    const PointPosterior posterior = objective_.predict_with_gradient(point);
    const double sd = std::sqrt(posterior.variance);
    const double z = (*best_ - posterior.mean) / sd;
    const LogWithSlope log = log_improvement(z);
    sum += std::log(sd) + log.value;
    gradient += posterior.variance_gradient / (2.0 * posterior.variance);
    add_slope(gradient, log, z, sd, posterior);
  }
  for (const GaussianProcess& constraint : constraints_) {
    const PointPosterior posterior = constraint.predict_with_gradient(point);
    const double sd = std::sqrt(posterior.variance);
    const double z = -posterior.mean / sd;
    const LogWithSlope log = log_distribution(z);
    sum += log.value;
    add_slope(gradient, log, z, sd, posterior);
  }
  return sum;
}

bool Acquisition::known(const VectorXd& point) const {
  return (objective_.observations().points.rowwise() - point.transpose())
             .cwiseAbs()
             .rowwise()
             .maxCoeff()
             .minCoeff() == 0.0;
}

VectorXd Acquisition::ascend(VectorXd point, const std::vector<Coordinate>& coordinates,
                             int max_evaluations) const {
  VectorXd lower = point;
  VectorXd upper = point;
  bool smooth = false;
  bool stepped = false;
  for (Index d = 0; d < point.size(); ++d) {
    const bool continuous = coordinates[static_cast<std::size_t>(d)].allowed.empty();
    (continuous ? smooth : stepped) = true;
    if (continuous) {
      lower[d] = 0.0;
      upper[d] = 1.0;
    }
  }
  const auto climb = [&] {
    if (!smooth) return;
    const auto descent = [&](const VectorXd& at, VectorXd& gradient) {
      const double height = value(at, gradient);
      gradient = -gradient;
      for (Index d = 0; d < at.size(); ++d) {
        if (lower[d] == upper[d]) gradient[d] = 0.0;
      }
      return -height;
    };
    point = bounded_minimum(descent, point, lower, upper,
                            {.max_evaluations = max_evaluations, .value_tolerance = 1e-6})
                .point;
  };
  climb();
  for (int round = 0; stepped && round < kExchangeRounds; ++round) {
    bool moved = false;
    double height = values(point.transpose())[0];
    for (Index d = 0; d < point.size(); ++d) {
      const std::vector<double>& allowed = coordinates[static_cast<std::size_t>(d)].allowed;
      if (allowed.empty()) continue;
      const std::vector<double> others = exchanges(allowed, point[d]);
      if (others.empty()) continue;
      MatrixXd trials = point.transpose().replicate(std::ssize(others), 1);
      trials.col(d) = Eigen::Map<const VectorXd>(others.data(), std::ssize(others));
      const VectorXd heights = values(trials);
      for (Index i = 0; i < heights.size(); ++i) {
        if (heights[i] > height && !known(trials.row(i))) {
          height = heights[i];
          point = trials.row(i);
          moved = true;
        }
      }
    }
    if (!moved) break;
    for (Index d = 0; d < point.size(); ++d) {
      if (!coordinates[static_cast<std::size_t>(d)].allowed.empty()) lower[d] = upper[d] = point[d];
    }
    climb();
  }
  return point;
}

VectorXd Acquisition::maximum(const MatrixXd& candidates,
                              const std::vector<Coordinate>& coordinates,
                              const MaximumOptions& options) const {
  if (candidates.rows() == 0) throw sim::UsageError("there must be at least one candidate");
  if (candidates.cols() != objective_.observations().points.cols() ||
      std::ssize(coordinates) != candidates.cols())
    throw sim::UsageError("candidates and coordinates must match the observations");
  MatrixXd points = candidates;
  for (Index d = 0; d < points.cols(); ++d) {
    const std::vector<double>& allowed = coordinates[static_cast<std::size_t>(d)].allowed;
    if (allowed.empty()) continue;
    for (Index i = 0; i < points.rows(); ++i) points(i, d) = nearest(allowed, points(i, d));
  }
  VectorXd heights = values(points);
  // Known points come last; ties keep the order of the candidates.
  std::vector<Index> order(static_cast<std::size_t>(points.rows()));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return heights[a] > heights[b]; });
  std::vector<VectorXd> chosen;
  for (const Index i : order) {
    if (std::ssize(chosen) >= options.starts) break;
    const VectorXd point = points.row(i);
    const bool repeats = std::find(chosen.begin(), chosen.end(), point) != chosen.end();
    if (!repeats && !known(point)) chosen.push_back(point);
  }
  if (chosen.empty()) return points.row(order.front());
  VectorXd best = chosen.front();
  double height = -kInfinity;
  for (const VectorXd& start : chosen) {
    for (const VectorXd& point : {ascend(start, coordinates, options.max_evaluations), start}) {
      if (known(point)) continue;
      const double reached = values(point.transpose())[0];
      if (reached > height) {
        height = reached;
        best = point;
      }
    }
  }
  return best;
}

void Acquisition::believe(const VectorXd& point, const std::vector<double>& noise_variances) {
  if (noise_variances.size() != constraints_.size() + 1)
    throw sim::UsageError("there must be one noise variance per process");
  objective_.believe(point, noise_variances.front());
  for (std::size_t i = 0; i < constraints_.size(); ++i) {
    constraints_[i].believe(point, noise_variances[i + 1]);
  }
  find_best();
}

}  // namespace spillway::search
