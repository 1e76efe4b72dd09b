#include <optional>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "numerics/nonnegative_least_squares.h"
#include "numerics/step_regression.h"
#include "sim/error.h"

namespace spillway::bindings {

namespace {

using numerics::StepCoefficients;
using numerics::StepFit;

StepCoefficients to_coefficients(const Array& array) {
  if (array.ndim() != 1 || array.shape(0) != numerics::kStepCoefficients) {
    throw sim::UsageError("expected an array of 7 coefficients");
  }
  return to_vector(array);
}

}  // namespace

void bind_numerics(py::module_& module) {
  module.def(
      "nonnegative_least_squares",
      [](const Array& a, const Array& b) {
        return to_array(numerics::nonnegative_least_squares(to_matrix(a), to_vector(b)));
      },
      py::arg("a"), py::arg("b"), "The x >= 0 that minimizes |a·x - b|.");
  py::class_<StepFit>(module, "StepFit", "Fitted coefficients of step times.")
      .def_property_readonly("coefficients",
                             [](const StepFit& self) { return to_array(self.coefficients); })
      .def_property_readonly("covariance",
                             [](const StepFit& self) { return to_table(self.covariance); })
      .def_readonly("residual_scale", &StepFit::residual_scale)
      .def_readonly("cost", &StepFit::cost);
  module.def(
      "fit_steps",
      [](const Array& batches, const Array& step_us, const Array& weights, const Array& prior_mean,
         const Array& prior_width, double norm, const std::optional<Array>& start) {
        const numerics::StepRows rows{to_matrix(batches), to_vector(step_us), to_vector(weights)};
        const numerics::StepPrior prior{to_coefficients(prior_mean), to_coefficients(prior_width)};
        std::optional<StepCoefficients> from;
        if (start) from = to_coefficients(*start);
        const py::gil_scoped_release release;
        return numerics::fit_steps(rows, prior, norm, from);
      },
      py::arg("batches"), py::arg("step_us"), py::arg("weights"), py::kw_only(),
      py::arg("prior_mean"), py::arg("prior_width"), py::arg("norm"), py::arg("start") = py::none(),
      "Fits constant, weights, token, decode, decode_context, prefill_context and chunk to steps. "
      "Columns of the batches: prefill tokens, decoding requests, their context, prefill "
      "attention, prefilling requests.");
  module.def(
      "step_times_us",
      [](const Array& batches, const Array& coefficients, double norm) {
        return to_array(
            numerics::step_times_us(to_matrix(batches), to_coefficients(coefficients), norm));
      },
      py::arg("batches"), py::arg("coefficients"), py::arg("norm"),
      "Step times of batches with these coefficients.");
}

}  // namespace spillway::bindings
