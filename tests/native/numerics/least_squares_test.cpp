// Recursive least squares against the weighted least squares problem over all samples at once,
// solved by a QR decomposition; and its behavior where it must differ.
#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "check.h"
#include "numerics/recursive_least_squares.h"
#include "sim/rng.h"

using spillway::numerics::RecursiveLeastSquares;
using spillway::numerics::RegressionRules;
using spillway::sim::Draws;
using spillway::sim::Stream;

namespace {

constexpr std::size_t kSize = 4;
using X = std::array<double, kSize>;

struct Sample {
  X x;
  double y = 0;
};

/// Rules under which no sample is ignored and all are forgotten alike.
RegressionRules plain(double forgetting, double initial_variance) {
  return {.forgetting = forgetting,
          .initial_variance = initial_variance,
          .largest_trace = 1e300,
          .outlier_sigmas = 1e300};
}

/// The minimum of Σ λ^(n−k) (yₖ − xₖᵀθ)² + w |θ − first|², with the weight
/// w = λⁿ ÷ initial variance + (1 − λⁿ) × size ÷ largest trace.
std::vector<double> batch(const std::vector<Sample>& samples, const std::vector<double>& first,
                          const RegressionRules& rules) {
  const auto n = static_cast<Eigen::Index>(samples.size());
  const auto p = static_cast<Eigen::Index>(kSize);
  Eigen::MatrixXd a = Eigen::MatrixXd::Zero(n + p, p);
  Eigen::VectorXd b(n + p);
  double weight = 1;  // its square root, from the last sample back
  for (Eigen::Index k = n - 1; k >= 0; --k) {
    const Sample& sample = samples[static_cast<std::size_t>(k)];
    for (Eigen::Index j = 0; j < p; ++j) a(k, j) = weight * sample.x[static_cast<std::size_t>(j)];
    b(k) = weight * sample.y;
    weight *= std::sqrt(rules.forgetting);
  }
  const double forgotten = weight * weight;
  weight = std::sqrt(forgotten / rules.initial_variance +
                     (1 - forgotten) * static_cast<double>(kSize) / rules.largest_trace);
  for (Eigen::Index j = 0; j < p; ++j) {
    a(n + j, j) = weight;
    b(n + j) = weight * first[static_cast<std::size_t>(j)];
  }
  const Eigen::VectorXd theta = a.colPivHouseholderQr().solve(b);
  return {theta.data(), theta.data() + theta.size()};
}

std::vector<Sample> samples_of(const X& truth, double noise, std::size_t count,
                               std::uint64_t seed) {
  Draws draws(seed, Stream::controller, 0);
  std::vector<Sample> samples(count);
  for (Sample& sample : samples) {
    sample.x = {1, 2 * draws.uniform(), 30 * draws.uniform(), draws.uniform()};
    sample.y = noise * draws.normal();
    for (std::size_t j = 0; j < kSize; ++j) sample.y += truth[j] * sample.x[j];
  }
  return samples;
}

void equals_the_batch_solution() {
  std::size_t compared = 0;
  for (const double forgetting : {1.0, 0.999, 0.97, 0.9}) {
    for (std::uint64_t seed = 0; seed < 25; ++seed) {
      RegressionRules rules = plain(forgetting, seed % 2 == 0 ? 1e3 : 1.0);
      if (seed % 3 == 0) rules.largest_trace = 4;
      const std::vector<double> first{1, 0.5, 2, 3};
      const auto samples = samples_of({5, 4, 3, 6}, 0.05, 200, seed);
      RecursiveLeastSquares regression(first, rules);
      for (std::size_t n = 0; n < samples.size(); ++n) {
        check(regression.update(samples[n].x, samples[n].y), "no outliers");
        const std::vector<double> expected = batch(
            {samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(n) + 1}, first, rules);
        bool is_positive = true;
        for (const double coefficient : expected) is_positive = is_positive && coefficient > 0;
        if (!is_positive) break;  // from here on the solutions may differ
        for (std::size_t j = 0; j < kSize; ++j) {
          check(std::abs(regression.coefficients()[j] - expected[j]) <= 1e-9 * expected[j],
                "coefficient equals the batch solution's");
        }
        ++compared;
      }
    }
  }
  check(compared > 10'000, "most runs stay positive");
}

void never_negative() {
  const auto samples = samples_of({1, -3, 2, 0}, 0.01, 300, 1);
  RecursiveLeastSquares regression({1, 1, 1, 1}, plain(0.98, 1e3));
  for (const Sample& sample : samples) {
    regression.update(sample.x, sample.y);
    for (const double theta : regression.coefficients()) check(theta >= 0, "none is negative");
  }
  check(regression.coefficients()[1] == 0, "what would be negative is 0");
}

void outliers_are_left_out_until_they_are_the_rule() {
  RegressionRules rules = plain(0.98, 1e3);
  rules.outlier_sigmas = 4;
  RecursiveLeastSquares regression({1, 1, 1, 1}, rules);
  const X truth{5, 4, 3, 6};
  for (const Sample& sample : samples_of(truth, 0.1, 300, 2)) regression.update(sample.x, sample.y);
  const std::vector<double> before(regression.coefficients().begin(),
                                   regression.coefficients().end());
  const X x{1, 1, 1, 1};
  check(!regression.update(x, 1000), "far off");
  for (std::size_t j = 0; j < kSize; ++j) {
    check(regression.coefficients()[j] == before[j], "an outlier teaches nothing");
  }
  const X other{50, 4, 3, 6};
  for (const Sample& sample : samples_of(other, 0.1, 400, 3)) regression.update(sample.x, sample.y);
  check(std::abs(regression.coefficients()[0] - 50) < 0.5, "a change is believed in the end");
}

void covariance_stays_bounded() {
  const auto largest = [](double largest_trace) {
    RegressionRules rules = plain(0.9, 1);
    rules.largest_trace = largest_trace;
    RecursiveLeastSquares regression({1, 1, 1, 1}, rules);
    double trace = 0;
    const X always{1, 1, 0, 0};  // no information on the other coefficients
    for (int i = 0; i < 150; ++i) {
      regression.update(always, 2);
      trace = std::max(trace, regression.trace());
    }
    return trace;
  };
  check(largest(1e12) > 1e6, "hardly bounded, it grows");
  check(largest(100) <= 100, "bounded, it does not");
}

// Whatever rare features come with the errors of common ones, and however often nothing is rare.
void light_load_stays_feasible() {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Draws draws(seed, Stream::controller, 0);
    RegressionRules rules = plain(0.95, 0.01);
    rules.largest_trace = 100;
    rules.outlier_sigmas = 4;
    RecursiveLeastSquares regression({0.007, 0.018, 0.02, 0.0003}, rules);
    for (int n = 0; n < 2000; ++n) {
      const bool is_rare = draws.uniform() < 0.02;
      const X x{1, 0.5, is_rare ? 0.003 * draws.uniform() : 0, 0.05 * draws.uniform()};
      regression.update(x, 0.03 + 0.01 * draws.uniform());
      check(regression.predict(X{1, 0.5, 0.5, 0.1}) < 1, "of 30 to 40 ms, not seconds");
    }
  }
}

void follows_slow_changes() {
  // The coefficients grow by 60% in 6,000 samples. A memory of 1 ÷ (1 − 0.98) = 50 samples lags
  // behind by 50 of them, 0.5%; the rest is what 50 samples with these errors leave open.
  RegressionRules rules = plain(0.98, 1e3);
  RecursiveLeastSquares forgetful({1, 1, 1, 1}, rules);
  rules.forgetting = 1;
  RecursiveLeastSquares faithful({1, 1, 1, 1}, rules);
  Draws draws(9, Stream::controller, 0);
  const X first{50, 30, 3, 60};
  constexpr int kSamples = 6000;
  constexpr int kLearned = 500;
  X sum{};
  for (int n = 0; n < kSamples; ++n) {
    const double scale = 1 + 0.6 * n / kSamples;
    const X x{1, 2 * draws.uniform(), 30 * draws.uniform(), draws.uniform()};
    double y = 0.05 * draws.normal();
    for (std::size_t j = 0; j < kSize; ++j) y += scale * first[j] * x[j];
    forgetful.update(x, y);
    faithful.update(x, y);
    if (n < kLearned) continue;
    for (std::size_t j = 0; j < kSize; ++j) {
      const double off = forgetful.coefficients()[j] / (scale * first[j]) - 1;
      check(std::abs(off) < 0.04, "every coefficient follows");
      sum[j] += off;
    }
  }
  for (const double total : sum) {
    const double lag = -total / (kSamples - kLearned);
    check(lag > 0.002 && lag < 0.006, "it lags by its memory");
  }
  check(faithful.coefficients()[0] < 0.9 * 1.6 * first[0], "without forgetting, none would");
}

}  // namespace

CASES(equals_the_batch_solution, never_negative, outliers_are_left_out_until_they_are_the_rule,
      covariance_stays_bounded, light_load_stays_feasible, follows_slow_changes);
