#include "numerics/nonnegative_least_squares.h"

#include <Eigen/QR>
#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "sim/error.h"

namespace spillway::numerics {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// Least squares in the given columns; 0 in the others.
VectorXd solve_in(const MatrixXd& a, const VectorXd& b, const std::vector<Index>& columns) {
  VectorXd x = VectorXd::Zero(a.cols());
  const VectorXd part = a(Eigen::all, columns).householderQr().solve(b);
  for (std::size_t k = 0; k < columns.size(); ++k) x[columns[k]] = part[static_cast<Index>(k)];
  return x;
}

/// Moves from x to the minimum in the free columns; those that reach 0 on the way leave the set.
VectorXd descend(const MatrixXd& a, const VectorXd& b, VectorXd x, std::vector<Index>& free) {
  while (!free.empty()) {
    const VectorXd target = solve_in(a, b, free);
    const auto share_of = [&](Index j) {
      return target[j] > 0 ? 1 : x[j] / (x[j] - target[j] + std::numeric_limits<double>::min());
    };
    double share = 1;
    for (const Index j : free) share = std::min(share, share_of(j));
    if (share >= 1) return target;
    std::vector<Index> left;
    const VectorXd moved = x + share * (target - x);
    x.setZero();
    for (const Index j : free) {
      if (share_of(j) <= share) continue;
      left.push_back(j);
      x[j] = moved[j];
    }
    free = left;
  }
  return x;
}

}  // namespace

VectorXd nonnegative_least_squares(const MatrixXd& a, const VectorXd& b) {
  if (a.rows() != b.size()) throw sim::UsageError("as many rows as values are needed");
  if (a.rows() < a.cols()) throw sim::UsageError("as many rows as columns are needed");
  if (!a.allFinite() || !b.allFinite()) throw sim::UsageError("all numbers must be finite");
  const Index n = a.cols();
  const VectorXd length = a.colwise().norm();
  const double tolerance = 1e2 * std::numeric_limits<double>::epsilon() * b.norm();
  VectorXd x = VectorXd::Zero(n);
  // Mostly no bound is active: start with every column.
  std::vector<Index> free;
  for (Index j = 0; j < n; ++j) {
    if (length[j] > 0) free.push_back(j);
  }
  x = descend(a, b, x, free);
  // Each round lowers the distance, so no set of columns returns; rounding may break that.
  for (Index round = 0; round < 10 * n; ++round) {
    const VectorXd gain = a.transpose() * (b - a * x);
    Index entering = -1;
    double steepest = tolerance;
    for (Index j = 0; j < n; ++j) {
      if (x[j] > 0 || length[j] == 0) continue;
      const double slope = gain[j] / length[j];
      if (slope > steepest) {
        steepest = slope;
        entering = j;
      }
    }
    if (entering < 0) break;
    std::erase_if(free, [&](Index j) { return x[j] == 0; });
    free.push_back(entering);
    if (solve_in(a, b, free)[entering] <= 0) break;  // the slope was rounding
    x = descend(a, b, x, free);
  }
  return x;
}

}  // namespace spillway::numerics
