#include "search/bounded_minimum.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <vector>

namespace spillway::search {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kSufficientDecrease = 1e-4;
constexpr int kMaxBacktracks = 20;

/// Coordinates that the slope does not hold at a bound.
std::vector<Index> free_coordinates(const VectorXd& point, const VectorXd& gradient,
                                    const VectorXd& lower, const VectorXd& upper) {
  std::vector<Index> free;
  for (Index i = 0; i < point.size(); ++i) {
    const bool held =
        (point[i] <= lower[i] && gradient[i] > 0.0) || (point[i] >= upper[i] && gradient[i] < 0.0);
    if (!held) free.push_back(i);
  }
  return free;
}

/// Quasi-Newton step on the free coordinates, none on the others.
VectorXd direction(const MatrixXd& hessian, const VectorXd& gradient,
                   const std::vector<Index>& free) {
  VectorXd step = VectorXd::Zero(gradient.size());
  const MatrixXd reduced = hessian(free, free);
  step(free) = -reduced.llt().solve(VectorXd(gradient(free)));
  return step;
}

void update(MatrixXd& hessian, const VectorXd& step, const VectorXd& change) {
  const double curvature = step.dot(change);
  if (curvature <= 1e-10 * step.norm() * change.norm()) return;
  const VectorXd image = hessian * step;
  hessian += change * change.transpose() / curvature;
  hessian -= image * image.transpose() / step.dot(image);
}

}  // namespace

Minimum bounded_minimum(const Differentiable& function, const VectorXd& start,
                        const VectorXd& lower, const VectorXd& upper,
                        const MinimumOptions& options) {
  const Index size = start.size();
  VectorXd point = start.cwiseMax(lower).cwiseMin(upper);
  VectorXd gradient(size);
  double value = function(point, gradient);
  int evaluations = 1;
  bool scaled = options.hessian.size() > 0;
  MatrixXd hessian = scaled ? options.hessian : MatrixXd::Identity(size, size);
  VectorXd next_gradient(size);

  while (evaluations < options.max_evaluations && std::isfinite(value)) {
    const std::vector<Index> free = free_coordinates(point, gradient, lower, upper);
    if (free.empty() || VectorXd(gradient(free)).cwiseAbs().maxCoeff() < options.gradient_tolerance)
      break;
    VectorXd step = direction(hessian, gradient, free);
    // Rounding may have corrupted the curvature: fall back to steepest descent.
    if (!step.allFinite() || step.dot(gradient) >= 0.0) {
      hessian.setIdentity();
      scaled = false;
      step = direction(hessian, gradient, free);
    }
    // Without a scale, the first step is at most one unit long.
    double length = scaled ? 1.0 : std::min(1.0, 1.0 / step.cwiseAbs().maxCoeff());
    VectorXd next;
    double next_value = value;
    bool found = false;
    for (int i = 0; i < kMaxBacktracks && evaluations < options.max_evaluations; ++i) {
      next = (point + length * step).cwiseMax(lower).cwiseMin(upper);
      next_value = function(next, next_gradient);
      ++evaluations;
      const double predicted = gradient.dot(next - point);
      found = std::isfinite(next_value) && next_gradient.allFinite() &&
              next_value <= value + kSufficientDecrease * predicted;
      if (found) break;
      // The minimum of the parabola through both values and the slope, within bounds.
      const double bend = next_value - value - predicted;
      const double factor = std::isfinite(bend) && bend > 0.0 ? -0.5 * predicted / bend : 0.1;
      length *= std::clamp(factor, 0.1, 0.5);
    }
    if (!found) break;
    const VectorXd moved = next - point;
    const VectorXd change = next_gradient - gradient;
    if (!scaled && moved.dot(change) > 0.0) {
      hessian.diagonal().setConstant(change.squaredNorm() / moved.dot(change));
      scaled = true;
    }
    update(hessian, moved, change);
    const double gain = value - next_value;
    point = next;
    value = next_value;
    gradient = next_gradient;
    if (gain <= options.value_tolerance * (1.0 + std::abs(value))) break;
  }
  return {std::move(point), value, evaluations, std::move(hessian)};
}

}  // namespace spillway::search
