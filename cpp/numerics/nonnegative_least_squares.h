#pragma once

#include <Eigen/Core>

namespace spillway::numerics {

/// The x ≥ 0 that minimizes |a·x − b|, by active sets (Lawson and Hanson, "Solving Least Squares
/// Problems", 1974, chapter 23). `a` has full column rank.
Eigen::VectorXd nonnegative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

}  // namespace spillway::numerics
