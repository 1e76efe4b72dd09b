#include "bindings/bindings.h"
#include "fleet/faults.h"
#include "metrics/figures.h"
#include "metrics/ledger.h"
#include "numerics/log_histogram.h"
#include "numerics/percentile.h"
#include "numerics/weighted_sample.h"
#include "sim/error.h"

namespace spillway::bindings {

namespace {

// Adds the HTTP status of each target system by reason.
void add_statuses(py::dict& statuses, const auto& reasons) {
  for (const workload::Reason& reason : reasons) {
    const workload::ReasonCategory& category = reason.category;
    py::dict by_system;
    by_system["vllm"] = category.vllm;
    by_system["llm-d"] = category.llm_d;
    by_system["llm-d-may-2026"] = category.llm_d_may_2026;
    by_system["dynamo"] = category.dynamo;
    by_system["envoy"] = category.envoy;
    by_system["vllm-on-eks"] = category.vllm_on_eks;
    statuses[py::str(std::string(reason.name))] = by_system;
  }
}

}  // namespace

void bind_metrics(py::module_& module) {
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
        std::vector<double> percentiles(ps.size());
        numerics::moments_of(sample.sorted(), ps, percentiles);
        return percentiles;
      },
      py::arg("pairs"), py::arg("ps"), "Percentiles of values given as (value, count).");
  module.def(
      "histogram_moments",
      [](const std::vector<std::vector<std::int64_t>>& parts, const std::vector<double>& ps) {
        numerics::LogHistogram merged;
        for (const auto& part : parts) {
          numerics::LogHistogram histogram;
          for (const std::int64_t value : part) {
            if (value < 0) throw sim::UsageError("the histogram takes values >= 0");
            histogram.add(value);
          }
          merged.merge(histogram);
        }
        if (merged.count() == 0) throw sim::UsageError("percentiles of no values");
        std::vector<double> percentiles(ps.size());
        const numerics::Moments moments = merged.moments(ps, percentiles);
        return py::make_tuple(moments.mean, moments.std_dev, percentiles);
      },
      py::arg("parts"), py::arg("ps"),
      "Mean, standard deviation and percentiles of the streaming mode's histogram, merged from "
      "parts.");
  using metrics::FigureInfo;
  py::class_<FigureInfo>(module, "FigureInfo", "The description of a figure of a summary.")
      .def_readonly("name", &FigureInfo::name)
      .def_readonly("doc", &FigureInfo::doc)
      .def_readonly("unit", &FigureInfo::unit)
      .def_readonly("population", &FigureInfo::population)
      .def_property_readonly("better",
                             [](const FigureInfo& figure) { return sim::name_of(figure.better); })
      .def_readonly("is_count", &FigureInfo::is_count)
      .def_readonly("by_group", &FigureInfo::by_group)
      .def_readonly("needs_targets", &FigureInfo::needs_targets)
      .def_readonly("streaming_only", &FigureInfo::streaming_only)
      .def_readonly("is_main", &FigureInfo::is_main)
      .def_readonly("in_group_tables", &FigureInfo::in_group_tables)
      .def_readonly("label", &FigureInfo::label)
      .def_readonly("latency", &FigureInfo::latency)
      .def_readonly("statistic", &FigureInfo::statistic)
      .def_readonly("blis", &FigureInfo::blis);
  py::list figures;
  for (const FigureInfo& figure : metrics::figures()) {
    figures.append(py::cast(&figure, py::return_value_policy::reference));
  }
  module.attr("figures") = py::tuple(figures);
  module.attr("reasons") = py::tuple(py::cast(metrics::reason_names()));
  py::dict statuses;
  add_statuses(statuses, gateway::kAdmissionReasons);
  add_statuses(statuses, gateway::Queue::reasons);
  add_statuses(statuses, instance::kWorkerReasons);
  add_statuses(statuses, workload::Reaction::reasons);
  add_statuses(statuses, router::Disaggregation::reasons);
  add_statuses(statuses, fleet::Health::reasons);
  add_statuses(statuses, router::kRouterReasons);
  module.attr("statuses") = statuses;
}

}  // namespace spillway::bindings
