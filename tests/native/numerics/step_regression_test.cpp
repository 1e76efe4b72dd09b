// The regression of step times against coefficients that are known, and its non-negative least
// squares against the conditions of Karush, Kuhn and Tucker.
#include "numerics/step_regression.h"

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "check.h"
#include "numerics/nonnegative_least_squares.h"
#include "sim/error.h"
#include "sim/rng.h"

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using spillway::numerics::fit_steps;
using spillway::numerics::nonnegative_least_squares;
using spillway::numerics::step_times_us;
using spillway::numerics::StepCoefficients;
using spillway::numerics::StepFit;
using spillway::numerics::StepPrior;
using spillway::numerics::StepRows;
using spillway::sim::Draws;
using spillway::sim::Stream;
using spillway::sim::UsageError;

namespace {

constexpr double kNorms[] = {1, 1.5, 2, 4, std::numeric_limits<double>::infinity()};

StepPrior prior() {
  StepCoefficients mean;
  mean << 2800, 9800, 50, 30, 0.06, 0.0017, 20;
  return {mean, mean};
}

/// Steps with and without prompts, on both sides of the roofline's ridge.
MatrixXd batches_of(Draws& draws, Index count) {
  MatrixXd batches(count, spillway::numerics::kBatchColumns);
  for (Index i = 0; i < count; ++i) {
    const double chunks = draws.uniform() < 0.4 ? 1 + static_cast<double>(draws.below(3)) : 0;
    const double prefill = chunks * static_cast<double>(20 + draws.below(800));
    const auto decode = 1 + static_cast<double>(draws.below(200));
    const double attention = prefill * (2000 * draws.uniform() + prefill / 2);
    batches.row(i) << prefill, decode, decode * (200 + 1800 * draws.uniform()), attention, chunks;
  }
  return batches;
}

StepCoefficients truth_of(Draws& draws) {
  StepCoefficients truth = prior().mean;
  for (double& coefficient : truth) coefficient *= std::exp(0.5 * draws.normal());
  return truth;
}

void check_close(double found, double expected, double tolerance, const std::string& what) {
  check(std::abs(found - expected) <= tolerance * expected,
        what + ": " + std::to_string(found) + " instead of " + std::to_string(expected));
}

void kkt_conditions_hold() {
  std::uint64_t bound = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Draws draws(seed, Stream::controller, 0);
    const auto columns = 1 + static_cast<Index>(draws.below(8));
    const Index rows = columns + static_cast<Index>(draws.below(10));
    MatrixXd a(rows, columns);
    VectorXd b(rows);
    for (double& entry : a.reshaped()) entry = draws.normal();
    for (double& entry : b) entry = draws.normal();
    const VectorXd x = nonnegative_least_squares(a, b);
    const VectorXd slope = a.transpose() * (a * x - b);
    for (Index j = 0; j < columns; ++j) {
      check(x[j] >= 0, "not negative");
      check(slope[j] >= -1e-9, "none would gain by growing");
      check(x[j] == 0 || std::abs(slope[j]) <= 1e-9, "those above the bound are at the minimum");
      bound += x[j] == 0 ? 1 : 0;
    }
  }
  check(bound > 2000, "bounds are active in many problems");
}

void coefficients_are_recovered() {
  for (const double norm : kNorms) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      Draws draws(seed, Stream::controller, 1);
      const MatrixXd batches = batches_of(draws, 600);
      const StepCoefficients truth = truth_of(draws);
      const VectorXd step_us = step_times_us(batches, truth, norm);
      const VectorXd weights = step_us.cwiseInverse().cwiseAbs2();
      const StepFit fit = fit_steps({batches, step_us, weights}, prior(), norm);
      if (norm == 1) {
        check_close(fit.coefficients[0] + fit.coefficients[1], truth[0] + truth[1], 1e-4, "sum");
        const double pull = (fit.coefficients[0] / 2800 - 1) * 9800;
        const double other = (fit.coefficients[1] / 9800 - 1) * 2800;
        const bool at_bound = fit.coefficients[0] == 0;
        check(at_bound || std::abs(pull - other) <= 1e-3 * 9800, "the prior decides the split");
      }
      for (Index j = norm == 1 ? 2 : 0; j < truth.size(); ++j) {
        check_close(fit.coefficients[j], truth[j], 1e-2, "coefficient " + std::to_string(j));
      }
    }
  }
}

void outliers_hardly_matter() {
  for (const double norm : kNorms) {
    Draws draws(7, Stream::controller, 2);
    const MatrixXd batches = batches_of(draws, 3000);
    const StepCoefficients truth = truth_of(draws);
    VectorXd step_us = step_times_us(batches, truth, norm);
    const VectorXd weights = step_us.cwiseInverse().cwiseAbs2();
    for (double& time_us : step_us) {
      time_us *= 1 + 0.01 * draws.normal();
      if (draws.uniform() < 0.1) time_us *= 10;  // the engine was interrupted
    }
    const StepFit fit = fit_steps({batches, step_us, weights}, prior(), norm);
    const VectorXd off =
        (step_times_us(batches, fit.coefficients, norm) - step_times_us(batches, truth, norm))
            .cwiseProduct(weights.cwiseSqrt());
    check(std::abs(off.mean()) < 0.005, "the fitted step times are those without outliers");
    check(fit.residual_scale < 0.02, "the scale is that of most rows");
  }
}

void prior_holds_what_rows_do_not_show() {
  Draws draws(3, Stream::controller, 3);
  MatrixXd batches = batches_of(draws, 500);
  batches.col(4).setZero();
  StepCoefficients truth = truth_of(draws);
  const VectorXd step_us = step_times_us(batches, truth, 2);
  StepPrior held = prior();
  const StepFit fit = fit_steps({batches, step_us, VectorXd::Ones(500)}, held, 2);
  check_close(fit.coefficients[6], 20, 1e-9, "a column of zeros leaves the prior");
  check_close(std::sqrt(fit.covariance(6, 6)), 20, 1e-9, "and its width");
  held.width[0] = 0;
  held.mean[0] = 1234;
  const StepFit with = fit_steps({batches, step_us, VectorXd::Ones(500)}, held, 2);
  check(with.coefficients[0] == 1234, "a width of 0 holds a coefficient");
  check(with.covariance.row(0).isZero() && with.covariance.col(0).isZero(), "without variance");
}

void rows_of_weight_0_do_not_count() {
  Draws draws(4, Stream::controller, 4);
  const MatrixXd batches = batches_of(draws, 400);
  VectorXd step_us = step_times_us(batches, truth_of(draws), 4);
  VectorXd weights = VectorXd::Ones(400);
  const StepFit some =
      fit_steps({batches.topRows(300), step_us.head(300), weights.head(300)}, prior(), 4);
  weights.tail(100).setZero();
  step_us.tail(100).setConstant(1);
  const StepFit all = fit_steps({batches, step_us, weights}, prior(), 4);
  check(all.coefficients == some.coefficients, "same coefficients");
  check(all.covariance == some.covariance, "same covariance");
}

void invalid_rows_are_refused() {
  Draws draws(5, Stream::controller, 5);
  const MatrixXd batches = batches_of(draws, 10);
  const VectorXd ones = VectorXd::Ones(10);
  VectorXd wrong = ones;
  wrong[3] = std::nan("");
  check_throws<UsageError>([&] { fit_steps({batches, wrong, ones}, prior(), 2); }, "NaN");
  wrong[3] = 0;
  check_throws<UsageError>([&] { fit_steps({batches, wrong, ones}, prior(), 2); }, "no duration");
  check_throws<UsageError>([&] { fit_steps({batches, ones, ones}, prior(), 0.5); }, "norm");
  check_throws<UsageError>([&] { fit_steps({batches, ones, VectorXd::Zero(10)}, prior(), 2); },
                           "no rows");
  check_throws<UsageError>([&] { fit_steps({batches.leftCols(4), ones, ones}, prior(), 2); },
                           "columns");
}

}  // namespace

CASES(kkt_conditions_hold, coefficients_are_recovered, outliers_hardly_matter,
      prior_holds_what_rows_do_not_show, rows_of_weight_0_do_not_count, invalid_rows_are_refused);
