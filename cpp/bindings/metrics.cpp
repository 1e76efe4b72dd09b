#include "bindings/bindings.h"
#include "bindings/config_class.h"
#include "metrics/config.h"
#include "numerics/percentile.h"

namespace spillway::bindings {

void bind_metrics(py::module_& module) {
  bind_config<metrics::FitnessTerm>(module);
  bind_config<metrics::Metrics>(module);
  module.def(
      "percentiles",
      [](std::vector<double> values, const std::vector<double>& ps) {
        if (values.empty()) throw sim::UsageError("percentiles of no values");
        return numerics::percentiles(values, ps);
      },
      py::arg("values"), py::arg("ps"),
      "Percentiles by NumPy's linear definition; `ps` ascending.");
  module.def(
      "weighted_percentiles",
      [](const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs,
         const std::vector<double>& ps) {
        numerics::WeightedSample sample;
        for (const auto& [value, count] : pairs) sample.add(value, count);
        if (sample.count() == 0) throw sim::UsageError("percentiles of no values");
        return sample.percentiles(ps);
      },
      py::arg("pairs"), py::arg("ps"), "Percentiles of values given as (value, count).");
}

}  // namespace spillway::bindings
