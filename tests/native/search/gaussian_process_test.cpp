// The Gaussian process against its definition by dense matrices; slopes against differences;
// beliefs against a process that observed them; the acquisition against its integral and its
// contract.
#include "search/gaussian_process.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "check.h"
#include "search/acquisition.h"
#include "search/bounded_minimum.h"
#include "sim/error.h"
#include "sim/rng.h"

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using spillway::search::Acquisition;
using spillway::search::Coordinate;
using spillway::search::GaussianProcess;
using spillway::search::Hyperparameters;
using spillway::search::Observations;
using spillway::search::PointPosterior;
using spillway::search::Posterior;
using spillway::sim::Draws;
using spillway::sim::Stream;
using spillway::sim::UsageError;

namespace {

Draws draws(std::uint64_t entity) { return {2026, Stream::controller, entity}; }

MatrixXd random_points(Index rows, Index columns, Draws& random) {
  MatrixXd points(rows, columns);
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) points(i, j) = random.uniform();
  }
  return points;
}

/// The last coordinate is a category.
Observations some_observations(Index n, std::uint64_t entity) {
  Draws random = draws(entity);
  Observations data{random_points(n, 3, random), VectorXd(n), VectorXd(n), {false, false, true}};
  for (Index i = 0; i < n; ++i) {
    data.points(i, 2) = static_cast<double>(random.below(3));
    data.noise_variance[i] = 0.01 + 0.05 * random.uniform();
    data.values[i] = std::sin(6.0 * data.points(i, 0)) + data.points(i, 1) * data.points(i, 2) -
                     1.0 + std::sqrt(data.noise_variance[i]) * random.normal();
  }
  return data;
}

Hyperparameters some_hyperparameters() {
  VectorXd length_scales(3);
  length_scales << 0.3, 0.9, 1.4;
  return {length_scales, 1.7, 0.02, 0.3};
}

/// Matérn-5/2 in closed form, by the square root of the scaled distance.
double covariance(const VectorXd& a, const VectorXd& b, const Hyperparameters& h) {
  double squared = 0.0;
  for (Index d = 0; d < 3; ++d) {
    const double apart = d == 2 ? (a[d] == b[d] ? 0.0 : 1.0) : a[d] - b[d];
    squared += apart * apart / (h.length_scales[d] * h.length_scales[d]);
  }
  const double r = std::sqrt(squared);
  const double root5 = std::sqrt(5.0);
  return h.signal_variance * (1.0 + root5 * r + 5.0 * squared / 3.0) * std::exp(-root5 * r);
}

MatrixXd covariances(const MatrixXd& a, const MatrixXd& b, const Hyperparameters& h) {
  MatrixXd result(a.rows(), b.rows());
  for (Index i = 0; i < a.rows(); ++i) {
    for (Index j = 0; j < b.rows(); ++j) result(i, j) = covariance(a.row(i), b.row(j), h);
  }
  return result;
}

bool close(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * (1.0 + std::abs(b));
}

void posterior_is_that_of_the_definition() {
  const Observations data = some_observations(70, 1);
  const Hyperparameters h = some_hyperparameters();
  MatrixXd total = covariances(data.points, data.points, h);
  total.diagonal().array() += data.noise_variance.array() + h.extra_noise_variance;
  const MatrixXd inverse = total.inverse();
  const MatrixXd where = some_observations(20, 2).points;
  const MatrixXd cross = covariances(where, data.points, h);
  const VectorXd centred = data.values.array() - h.mean;
  const VectorXd mean = (cross * inverse * centred).array() + h.mean;
  const MatrixXd left = covariances(where, where, h) - cross * inverse * cross.transpose();

  const GaussianProcess process(data, h);
  const Posterior posterior = process.predict(where);
  check((posterior.mean - mean).cwiseAbs().maxCoeff() < 1e-9, "posterior mean");
  check((posterior.variance - left.diagonal()).cwiseAbs().maxCoeff() < 1e-9, "posterior variance");
  check((process.fitted() - process.predict(data.points).mean).cwiseAbs().maxCoeff() < 1e-9,
        "mean at the observations");
  for (Index i = 0; i < where.rows(); ++i) {
    const PointPosterior point = process.predict_with_gradient(where.row(i));
    check(close(point.mean, mean[i], 1e-9) && close(point.variance, left(i, i), 1e-9), "one point");
  }

  const double likelihood = -0.5 * centred.dot(inverse * centred) -
                            0.5 * std::log(total.determinant()) -
                            35.0 * std::log(2.0 * std::numbers::pi);
  check(close(spillway::search::log_marginal_likelihood(data, h).value, likelihood, 1e-9),
        "log marginal likelihood");
}

// 70 observations: some blocks of the matrix products are partial.
void slopes_are_those_of_differences() {
  const Observations data = some_observations(70, 3);
  const Hyperparameters h = some_hyperparameters();
  const auto shifted = [&](Index which, double by) {
    Hyperparameters other = h;
    const double factor = std::exp(by);
    if (which < 3) other.length_scales[which] *= factor;
    if (which == 3) other.signal_variance *= factor;
    if (which == 4) other.extra_noise_variance *= factor;
    return spillway::search::log_marginal_likelihood(data, other).value;
  };
  const VectorXd gradient = spillway::search::log_marginal_likelihood(data, h).gradient;
  constexpr double kStep = 1e-5;
  for (Index i = 0; i < 5; ++i) {
    const double slope = (shifted(i, kStep) - shifted(i, -kStep)) / (2.0 * kStep);
    check(close(gradient[i], slope, 1e-6), "slope of the likelihood");
  }

  Observations limit = some_observations(70, 4);
  limit.points = data.points;
  const Acquisition acquisition(GaussianProcess(data, h), {GaussianProcess(limit, h)});
  check(acquisition.best().has_value(), "some point is feasible");
  const MatrixXd where = some_observations(10, 5).points;
  for (Index i = 0; i < where.rows(); ++i) {
    VectorXd slopes;
    const double value = acquisition.value(where.row(i), slopes);
    check(close(value, acquisition.values(where.row(i))[0], 1e-9), "one value and many");
    for (Index d = 0; d < 2; ++d) {
      MatrixXd around = where.row(i).replicate(2, 1);
      around(0, d) += kStep;
      around(1, d) -= kStep;
      const VectorXd ends = acquisition.values(around);
      check(close(slopes[d], (ends[0] - ends[1]) / (2.0 * kStep), 1e-5), "slope of acquisition");
    }
    check(slopes[2] == 0.0, "a category has no slope");
  }
}

void belief_is_an_observation_of_the_mean() {
  Observations data = some_observations(40, 6);
  const Hyperparameters h = some_hyperparameters();
  GaussianProcess process(data, h);
  const MatrixXd where = some_observations(20, 7).points;
  const Posterior before = process.predict(where);
  for (Index i = 0; i < 3; ++i) {
    const VectorXd point = where.row(i);
    const double mean = process.predict(where.row(i)).mean[0];
    process.believe(point, 0.03);
    const Index n = data.points.rows();
    data.points.conservativeResize(n + 1, Eigen::NoChange);
    data.points.row(n) = point;
    data.values.conservativeResize(n + 1);
    data.values[n] = mean;
    data.noise_variance.conservativeResize(n + 1);
    data.noise_variance[n] = 0.03;
  }
  const Posterior after = process.predict(where);
  const Posterior observed = GaussianProcess(data, h).predict(where);
  check((after.mean - observed.mean).cwiseAbs().maxCoeff() < 1e-9, "mean");
  check((after.variance - observed.variance).cwiseAbs().maxCoeff() < 1e-9, "variance");
  check((after.mean - before.mean).cwiseAbs().maxCoeff() < 1e-9, "a belief moves no mean");
  check((before.variance - after.variance).minCoeff() > -1e-12, "a belief adds no doubt");
  check(after.variance[0] < before.variance[0], "the believed point is known better");
}

void fit_finds_a_stationary_point_in_the_box() {
  const Observations data = some_observations(130, 8);
  const Hyperparameters h =
      spillway::search::fit(data, {.priors = std::nullopt, .max_evaluations = 200}, std::nullopt);
  const VectorXd gradient = spillway::search::log_marginal_likelihood(data, h).gradient;
  check(gradient.head(4).cwiseAbs().maxCoeff() < 0.2, "no slope is left");
  const double reached = spillway::search::log_marginal_likelihood(data, h).value;
  check(reached > spillway::search::log_marginal_likelihood(data, some_hyperparameters()).value + 1,
        "more likely than a guess");
  const Hyperparameters again =
      spillway::search::fit(data, {.priors = std::nullopt, .max_evaluations = 200}, h);
  check(close(spillway::search::log_marginal_likelihood(data, again).value, reached, 1e-4),
        "a warm start stays");
}

void minimum_respects_the_box() {
  // Rosenbrock's valley, whose minimum (1, 1) is outside.
  const auto valley = [](const VectorXd& x, VectorXd& gradient) {
    const double bend = x[1] - x[0] * x[0];
    gradient[0] = -400.0 * bend * x[0] - 2.0 * (1.0 - x[0]);
    gradient[1] = 200.0 * bend;
    return 100.0 * bend * bend + (1.0 - x[0]) * (1.0 - x[0]);
  };
  const auto minimum = [&](double upper) {
    return spillway::search::bounded_minimum(
        valley, VectorXd::Constant(2, -1.5), VectorXd::Constant(2, -2.0),
        VectorXd::Constant(2, upper), {.max_evaluations = 500});
  };
  check((minimum(2.0).point - VectorXd::Ones(2)).norm() < 1e-3, "inside");
  const VectorXd at_bound = minimum(0.5).point;
  check(at_bound[0] == 0.5 && std::abs(at_bound[1] - 0.25) < 1e-4, "at the bound");
}

/// E[max(best − f, 0)] in standard deviations, by Simpson's rule on φ(t − z)·t with the peak's
/// factor exp(−z²/2) taken out, for z ≤ 0.
double log_improvement_by_integral(double z) {
  constexpr int kSteps = 200000;
  const double end = 40.0;
  const double width = end / kSteps;
  double sum = 0.0;
  for (int i = 0; i <= kSteps; ++i) {
    const double t = i * width;
    const double weight = i == 0 || i == kSteps ? 1.0 : (i % 2 == 1 ? 4.0 : 2.0);
    sum += weight * t * std::exp(-0.5 * t * t + z * t);
  }
  return std::log(sum * width / 3.0) - 0.5 * z * z - 0.5 * std::log(2.0 * std::numbers::pi);
}

void improvement_is_its_integral() {
  for (const double z : {0.0, -0.5, -1.0, -1.999, -2.001, -3.0, -10.0, -40.0, -300.0}) {
    const double value = spillway::search::log_expected_improvement(-z, 1.0, 0.0);
    check(close(value, log_improvement_by_integral(z), 1e-8), "expected improvement");
  }
  check(close(spillway::search::log_expected_improvement(-3.0, 0.5, 1.0), std::log(4.0), 1e-12),
        "a sure gain is the gain");
  check(std::isfinite(spillway::search::log_expected_improvement(1e8, 1.0, 0.0)), "far away");
  check(close(spillway::search::log_probability_of_feasibility(-1.0, 2.0),
              std::log(0.5 * std::erfc(-0.5 / std::numbers::sqrt2)), 1e-12),
        "feasibility");
  check(close(spillway::search::log_probability_of_feasibility(20.0, 1.0),
              std::log(0.5 * std::erfc(20.0 / std::numbers::sqrt2)), 1e-12),
        "feasibility in the tail");
}

void maximum_is_allowed_and_new() {
  const Observations data = some_observations(30, 9);
  const Hyperparameters h = some_hyperparameters();
  Acquisition acquisition(GaussianProcess(data, h), {});
  Draws random = draws(10);
  const MatrixXd candidates = random_points(256, 3, random);
  const std::vector<Coordinate> coordinates = {{}, {{0.0, 0.3, 1.0}}, {{0.0, 1.0, 2.0}}};
  std::vector<VectorXd> batch;
  for (int i = 0; i < 6; ++i) {
    const VectorXd point = acquisition.maximum(candidates, coordinates, {});
    check(point[0] >= 0.0 && point[0] <= 1.0, "in the box");
    for (const Index d : {1, 2}) {
      const auto& allowed = coordinates[static_cast<std::size_t>(d)].allowed;
      check(std::find(allowed.begin(), allowed.end(), point[d]) != allowed.end(), "allowed");
    }
    MatrixXd snapped = candidates;
    for (Index row = 0; row < snapped.rows(); ++row) {
      snapped(row, 1) = snapped(row, 1) < 0.15 ? 0.0 : snapped(row, 1) < 0.65 ? 0.3 : 1.0;
      snapped(row, 2) = snapped(row, 2) < 0.5 ? 0.0 : 1.0;
    }
    check(acquisition.values(point.transpose())[0] >= acquisition.values(snapped).maxCoeff(),
          "no candidate is better");
    for (const VectorXd& other : batch) check(point != other, "a batch has distinct points");
    batch.push_back(point);
    acquisition.believe(point, {0.03});
  }
}

void small_space_is_exhausted_before_a_point_repeats() {
  Observations data{MatrixXd(1, 1), VectorXd::Zero(1), VectorXd::Constant(1, 0.01), {true}};
  data.points(0, 0) = 2.0;
  Acquisition acquisition(GaussianProcess(data, {VectorXd::Ones(1), 1.0, 0.0, 0.0}), {});
  MatrixXd candidates(4, 1);
  candidates << 0.0, 1.0, 2.0, 3.0;
  const std::vector<Coordinate> coordinates = {{{0.0, 1.0, 2.0, 3.0}}};
  std::vector<bool> seen(4, false);
  seen[2] = true;
  for (int i = 0; i < 3; ++i) {
    const VectorXd point = acquisition.maximum(candidates, coordinates, {});
    check(!seen[static_cast<std::size_t>(point[0])], "a new category");
    seen[static_cast<std::size_t>(point[0])] = true;
    acquisition.believe(point, {0.01});
  }
  acquisition.maximum(candidates, coordinates, {});  // all are known: any result is valid
}

void constraints_decide_what_is_best() {
  Observations data{MatrixXd(3, 1), VectorXd(3), VectorXd::Constant(3, 1e-4), {false}};
  data.points << 0.0, 0.5, 1.0;
  data.values << -1.0, 0.0, 1.0;
  Observations limit = data;
  limit.values << 1.0, -1.0, -1.0;  // the best value is infeasible
  const Hyperparameters h{VectorXd::Constant(1, 0.2), 1.0, 1e-6, 0.0};
  const Acquisition bounded(GaussianProcess(data, h), {GaussianProcess(limit, h)});
  check(bounded.recommended() == 1, "the best allowed");
  check(std::abs(*bounded.best()) < 0.01, "the value to beat is the best allowed");
  limit.values << 3.0, 2.0, 1.0;
  const Acquisition impossible(GaussianProcess(data, h), {GaussianProcess(limit, h)});
  check(!impossible.best() && impossible.recommended() == 2, "the nearest to being allowed");
}

void misuse_is_refused() {
  const Observations data = some_observations(5, 11);
  const Hyperparameters h = some_hyperparameters();
  Observations negative = data;
  negative.noise_variance[2] = -1.0;
  check_throws<UsageError>([&] { GaussianProcess(negative, h); }, "negative noise");
  Observations twice = data;
  twice.points.row(1) = twice.points.row(0);
  twice.noise_variance.setZero();
  Hyperparameters noiseless = h;
  noiseless.extra_noise_variance = 0.0;
  check_throws<UsageError>([&] { GaussianProcess(twice, noiseless); }, "singular covariance");
  check_throws<UsageError>(
      [&] {
        Acquisition(GaussianProcess(data, h), {GaussianProcess(some_observations(6, 12), h)});
      },
      "other points");
}

}  // namespace

CASES(posterior_is_that_of_the_definition, slopes_are_those_of_differences,
      belief_is_an_observation_of_the_mean, fit_finds_a_stationary_point_in_the_box,
      minimum_respects_the_box, improvement_is_its_integral, maximum_is_allowed_and_new,
      small_space_is_exhausted_before_a_point_repeats, constraints_decide_what_is_best,
      misuse_is_refused);
