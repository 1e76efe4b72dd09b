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

/// What a coordinate may be: a number in [0, 1] if `allowed` is empty, else one of these,
/// ascending.
struct Coordinate {
  std::vector<double> allowed;
};

struct MaximumOptions {
  int starts = 5;  ///< best candidates from which the ascent starts
  int max_evaluations = 40;
};

/// Value of measuring a point when the objective is to be small and every constraint ≤ 0:
/// log expected improvement over the best *posterior mean* among points that are feasible by their
/// posterior mean, plus the log probability of each constraint. As long as no point seems feasible
/// it is the log probability of feasibility alone. A lucky measurement does not move the best.
/// Towards the ends of a coordinate's range the value is discounted, the more the larger the noise
/// is beside the spread of the values: nothing lies beyond an end, so a process is least certain
/// there, and would send every third coordinate of a noisy search to one (Siivola et al.,
/// "Correcting boundary over-exploration deficiencies in Bayesian optimization", MLSP'18, who cure
/// it by other means).
class Acquisition {
 public:
  /// All processes have observed the same points.
  Acquisition(GaussianProcess objective, std::vector<GaussianProcess> constraints);

  /// The posterior mean to beat; none if no point seems feasible.
  std::optional<double> best() const { return best_; }
  /// The row of the observation to recommend: feasible with the best posterior mean, else the one
  /// that is most probably feasible. Believed points are left out.
  Eigen::Index recommended() const;

  Eigen::VectorXd values(const Eigen::MatrixXd& points) const;
  double value(const Eigen::VectorXd& point, Eigen::VectorXd& gradient) const;
  /// The most valuable point: the best candidates (rows, moved to allowed values) climb, smoothly
  /// in the continuous coordinates and by exchange in the others. A point that was observed or is
  /// believed already is returned only if every candidate is one.
  Eigen::VectorXd maximum(const Eigen::MatrixXd& candidates,
                          const std::vector<Coordinate>& coordinates,
                          const MaximumOptions& options) const;

  /// Takes a point as being measured, see GaussianProcess::believe. The noise is one per process:
  /// objective first.
  void believe(const Eigen::VectorXd& point, const std::vector<double>& noise_variances);

 private:
  void find_best();
  bool known(const Eigen::VectorXd& point) const;
  bool is_categorical(Eigen::Index coordinate) const {
    return objective_.observations().categorical[static_cast<std::size_t>(coordinate)];
  }
  Eigen::VectorXd ascend(Eigen::VectorXd point, const std::vector<Coordinate>& coordinates,
                         int max_evaluations) const;

  GaussianProcess objective_;
  std::vector<GaussianProcess> constraints_;
  Eigen::Index observed_;
  double edge_strength_;
  std::optional<double> best_;
};

}  // namespace spillway::search
