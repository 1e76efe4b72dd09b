#include <Eigen/Core>
#include <optional>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "search/acquisition.h"
#include "search/gaussian_process.h"

namespace spillway::bindings {

namespace {

using search::Acquisition;
using search::GaussianProcess;
using search::Hyperparameters;
using search::Priors;

search::Observations observations(const Array& points, const Array& values,
                                  const Array& noise_variance,
                                  const std::optional<std::vector<bool>>& categorical) {
  search::Observations result{to_matrix(points), to_vector(values), to_vector(noise_variance), {}};
  result.categorical = categorical.value_or(
      std::vector<bool>(static_cast<std::size_t>(result.points.cols()), false));
  return result;
}

void bind_values(py::module_& module) {
  py::class_<Priors>(module, "Priors", "Normal priors of the logarithms of hyperparameters.")
      .def(py::init([](double log_length_scale_mean, double log_length_scale_sd,
                       double log_signal_variance_mean, double log_signal_variance_sd,
                       double log_extra_noise_mean, double log_extra_noise_sd) {
             return Priors{log_length_scale_mean,  log_length_scale_sd,  log_signal_variance_mean,
                           log_signal_variance_sd, log_extra_noise_mean, log_extra_noise_sd};
           }),
           py::kw_only(), py::arg("log_length_scale_mean") = Priors{}.log_length_scale_mean,
           py::arg("log_length_scale_sd") = Priors{}.log_length_scale_sd,
           py::arg("log_signal_variance_mean") = Priors{}.log_signal_variance_mean,
           py::arg("log_signal_variance_sd") = Priors{}.log_signal_variance_sd,
           py::arg("log_extra_noise_mean") = Priors{}.log_extra_noise_mean,
           py::arg("log_extra_noise_sd") = Priors{}.log_extra_noise_sd);

  py::class_<Hyperparameters>(module, "Hyperparameters",
                              "Hyperparameters of the Matérn-5/2 kernel and a constant mean.")
      .def(py::init([](const Array& length_scales, double signal_variance,
                       double extra_noise_variance, double mean) {
             return Hyperparameters{to_vector(length_scales), signal_variance, extra_noise_variance,
                                    mean};
           }),
           py::kw_only(), py::arg("length_scales"), py::arg("signal_variance") = 1.0,
           py::arg("extra_noise_variance") = 1e-6, py::arg("mean") = 0.0)
      .def_property_readonly(
          "length_scales", [](const Hyperparameters& self) { return to_array(self.length_scales); })
      .def_readonly("signal_variance", &Hyperparameters::signal_variance)
      .def_readonly("extra_noise_variance", &Hyperparameters::extra_noise_variance)
      .def_readonly("mean", &Hyperparameters::mean);
}

}  // namespace

void bind_search(py::module_& module) {
  bind_values(module);
  module.def(
      "log_marginal_likelihood",
      [](const Array& points, const Array& values, const Array& noise_variance,
         const Hyperparameters& hyperparameters,
         const std::optional<std::vector<bool>>& categorical) {
        const search::LogLikelihood likelihood = search::log_marginal_likelihood(
            observations(points, values, noise_variance, categorical), hyperparameters);
        return py::make_tuple(likelihood.value, to_array(likelihood.gradient));
      },
      py::arg("points"), py::arg("values"), py::arg("noise_variance"), py::arg("hyperparameters"),
      py::kw_only(), py::arg("categorical") = py::none(),
      "Value and gradient in log(length scales), log(signal variance), log(extra noise variance).");
  module.def(
      "fit",
      [](const Array& points, const Array& values, const Array& noise_variance,
         const std::optional<std::vector<bool>>& categorical, const std::optional<Priors>& priors,
         const std::optional<Hyperparameters>& warm_start, int max_evaluations) {
        const search::Observations data = observations(points, values, noise_variance, categorical);
        const py::gil_scoped_release release;
        return search::fit(data, {priors, max_evaluations}, warm_start);
      },
      py::arg("points"), py::arg("values"), py::arg("noise_variance"), py::kw_only(),
      py::arg("categorical") = py::none(), py::arg("priors") = Priors{},
      py::arg("warm_start") = py::none(), py::arg("max_evaluations") = 60,
      "The most probable hyperparameters of standardized values; without priors the most likely "
      "ones.");

  py::class_<GaussianProcess>(
      module, "GaussianProcess",
      "A Gaussian process conditioned on values with individual noise variances.")
      .def(py::init([](const Array& points, const Array& values, const Array& noise_variance,
                       const Hyperparameters& hyperparameters,
                       const std::optional<std::vector<bool>>& categorical) {
             return GaussianProcess(observations(points, values, noise_variance, categorical),
                                    hyperparameters);
           }),
           py::arg("points"), py::arg("values"), py::arg("noise_variance"),
           py::arg("hyperparameters"), py::kw_only(), py::arg("categorical") = py::none())
      .def(
          "predict",
          [](const GaussianProcess& self, const Array& points) {
            const search::Posterior posterior = self.predict(to_matrix(points));
            return py::make_tuple(to_array(posterior.mean), to_array(posterior.variance));
          },
          py::arg("points"), "Mean and variance of the noiseless function.")
      .def(
          "fitted", [](const GaussianProcess& self) { return to_array(self.fitted()); },
          "Posterior mean at the observed and believed points.")
      .def(
          "believe",
          [](GaussianProcess& self, const Array& point, double noise_variance) {
            self.believe(to_vector(point), noise_variance);
          },
          py::arg("point"), py::arg("noise_variance"),
          "Conditions on a pending value as if it were the posterior mean.");

  module.def("log_expected_improvement", &search::log_expected_improvement, py::arg("mean"),
             py::arg("sd"), py::arg("best"),
             "log E[max(best − f, 0)] for a normal f; exact far into the tail.");
  module.def("log_probability_of_feasibility", &search::log_probability_of_feasibility,
             py::arg("mean"), py::arg("sd"), "log P(f ≤ 0) for a normal f.");

  py::class_<Acquisition>(
      module, "Acquisition",
      "Value of measuring a point: the objective is minimized, constraints are ≤ 0.")
      .def(py::init<GaussianProcess, std::vector<GaussianProcess>>(), py::arg("objective"),
           py::arg("constraints") = std::vector<GaussianProcess>())
      .def_property_readonly("best", &Acquisition::best)
      .def("recommended", &Acquisition::recommended,
           "Row of the observation with the best feasible posterior mean.")
      .def(
          "values",
          [](const Acquisition& self, const Array& points) {
            return to_array(self.values(to_matrix(points)));
          },
          py::arg("points"))
      .def(
          "value_and_gradient",
          [](const Acquisition& self, const Array& point) {
            Eigen::VectorXd gradient;
            const double value = self.value(to_vector(point), gradient);
            return py::make_tuple(value, to_array(gradient));
          },
          py::arg("point"))
      .def(
          "maximum",
          [](const Acquisition& self, const Array& candidates,
             const std::vector<std::vector<double>>& allowed, int starts, int max_evaluations) {
            const Eigen::MatrixXd points = to_matrix(candidates);
            std::vector<search::Coordinate> coordinates;
            for (const std::vector<double>& values : allowed) coordinates.push_back({values});
            Eigen::VectorXd point;
            {
              const py::gil_scoped_release release;
              point = self.maximum(points, coordinates, {starts, max_evaluations});
            }
            return to_array(point);
          },
          py::arg("candidates"), py::arg("allowed"), py::kw_only(), py::arg("starts") = 5,
          py::arg("max_evaluations") = 40,
          "The most valuable point; `allowed` lists the values of each coordinate, none if "
          "continuous.")
      .def(
          "believe",
          [](Acquisition& self, const Array& point, const std::vector<double>& noise_variances) {
            self.believe(to_vector(point), noise_variances);
          },
          py::arg("point"), py::arg("noise_variances"), "Treats a point as being measured.");
}

}  // namespace spillway::bindings
