#pragma once

#include <Eigen/Core>
#include <optional>
#include <vector>

#include "search/gaussian_process.h"

/// Where to measure next.
namespace spillway::search {

/// log E[max(best − f, 0)] for f normal with this mean and standard deviation; exact far into the
/// tail, where the expectation itself underflows.
double log_expected_improvement(double mean, double sd, double best);
/// log P(f ≤ 0).
double log_probability_of_feasibility(double mean, double sd);

/// The domain of a coordinate: [0, 1] if `allowed` is empty, otherwise the values in it, ascending.
struct Coordinate {
  std::vector<double> allowed;
};

struct MaximumOptions {
  int starts = 5;  ///< number of best candidates from which an ascent starts
  int max_evaluations = 40;
};

/// The value of measuring a point if the objective is to be minimized under constraints ≤ 0: log
/// expected improvement over the best *posterior mean* among points that are feasible by their
/// posterior mean, plus the log probability of each constraint. As long as no point seems feasible,
/// it is the log probability of feasibility alone. A lucky measurement does not move the best.
class Acquisition {
 public:
  /// All processes have observed the same points.
  Acquisition(GaussianProcess objective, std::vector<GaussianProcess> constraints);

  /// The posterior mean to beat; unset if no point seems feasible.
  std::optional<double> best() const { return best_; }
  /// The row of the recommended observation: feasible with the best posterior mean, otherwise the
  /// most probably feasible one. Believed points are excluded.
  Eigen::Index recommended() const;

  Eigen::VectorXd values(const Eigen::MatrixXd& points) const;
  double value(const Eigen::VectorXd& point, Eigen::VectorXd& gradient) const;
  /// The most valuable point: an ascent from the best candidates (rows, moved to allowed values),
  /// by gradient in the continuous coordinates and by exchange in the others. An already observed
  /// or believed point is returned only if every candidate is one.
  Eigen::VectorXd maximum(const Eigen::MatrixXd& candidates,
                          const std::vector<Coordinate>& coordinates,
                          const MaximumOptions& options) const;

  /// Treats a point as being measured, see GaussianProcess::believe. One noise variance per
  /// process, the objective's first.
  void believe(const Eigen::VectorXd& point, const std::vector<double>& noise_variances);

 private:
  void find_best();
  void check_coordinates(Eigen::Index number) const;
  bool known(const Eigen::VectorXd& point) const;
  Eigen::VectorXd ascend(Eigen::VectorXd point, const std::vector<Coordinate>& coordinates,
                         int max_evaluations) const;

  GaussianProcess objective_;
  std::vector<GaussianProcess> constraints_;
  Eigen::Index observed_;
  std::optional<double> best_;
};

}  // namespace spillway::search
