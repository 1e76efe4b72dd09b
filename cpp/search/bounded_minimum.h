#pragma once

#include <Eigen/Core>
#include <functional>

namespace spillway::search {

/// The value at a point; writes the gradient there, which has the point's size already.
using Differentiable =
    std::function<double(const Eigen::VectorXd& point, Eigen::VectorXd& gradient)>;

struct Minimum {
  Eigen::VectorXd point;
  double value = 0.0;
  int evaluations = 0;
  Eigen::MatrixXd hessian = {};  ///< as it was approximated on the way
};

struct MinimumOptions {
  int max_evaluations = 100;
  double gradient_tolerance = 1e-5;  ///< largest projected slope that counts as none
  double value_tolerance = 1e-9;  ///< a step that gains less, relative to 1 + |value|, is the last
  Eigen::MatrixXd hessian = {};   ///< to begin with, if known
};

/// A local minimum in the box lower ≤ x ≤ upper: BFGS on the coordinates that are free to move,
/// with backtracking along the projected path. The start is moved into the box first.
Minimum bounded_minimum(const Differentiable& function, const Eigen::VectorXd& start,
                        const Eigen::VectorXd& lower, const Eigen::VectorXd& upper,
                        const MinimumOptions& options = {});

}  // namespace spillway::search
