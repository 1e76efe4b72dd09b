#pragma once

#include <Eigen/Core>
#include <functional>

namespace spillway::search {

/// The value at a point; writes the gradient, which already has the point's size.
using Differentiable =
    std::function<double(const Eigen::VectorXd& point, Eigen::VectorXd& gradient)>;

struct Minimum {
  Eigen::VectorXd point;
  double value = 0.0;
  int evaluations = 0;
  Eigen::MatrixXd hessian = {};  ///< its final approximation
};

struct MinimumOptions {
  int max_evaluations = 100;
  double gradient_tolerance = 1e-5;  ///< largest projected slope that counts as zero
  double value_tolerance =
      1e-9;  ///< minimum gain of a step, relative to 1 + |value|; a smaller one is the last
  Eigen::MatrixXd hessian = {};  ///< initial approximation, if known
};

/// A local minimum in the box lower ≤ x ≤ upper: BFGS on the coordinates that are free to move,
/// with backtracking along the projected path. The start is first moved into the box.
Minimum bounded_minimum(const Differentiable& function, const Eigen::VectorXd& start,
                        const Eigen::VectorXd& lower, const Eigen::VectorXd& upper,
                        const MinimumOptions& options = {});

}  // namespace spillway::search
