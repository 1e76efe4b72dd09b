#pragma once

#include <Eigen/Core>

#include "bindings/casters.h"
#include "sim/error.h"

namespace spillway::bindings {

using Array = py::array_t<double, py::array::c_style | py::array::forcecast>;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

inline Eigen::MatrixXd to_matrix(const Array& array) {
  if (array.ndim() != 2) throw sim::UsageError("points must be a two-dimensional array");
  return Eigen::Map<const RowMajor>(array.data(), array.shape(0), array.shape(1));
}

inline Eigen::VectorXd to_vector(const Array& array) {
  if (array.ndim() != 1) throw sim::UsageError("expected a one-dimensional array");
  return Eigen::Map<const Eigen::VectorXd>(array.data(), array.shape(0));
}

inline Array to_array(const Eigen::VectorXd& vector) { return Array(vector.size(), vector.data()); }

inline Array to_table(const RowMajor& matrix) {
  return Array({matrix.rows(), matrix.cols()}, matrix.data());
}

}  // namespace spillway::bindings
