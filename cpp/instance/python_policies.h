#pragma once

#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/python_policy.h"

namespace spillway::workload {
class RequestTable;
}

/// The policies of an instance that are written in Python.
namespace spillway::instance {

class SchedulerPolicy;

using SchedulerFactory = sim::PolicyFactory<SchedulerPolicy, const workload::RequestTable&>;

/// A scheduler written in Python.
struct PythonScheduler : sim::PythonPolicy<SchedulerFactory> {
  static constexpr std::string_view type_name = "PythonScheduler";
  static constexpr std::string_view doc =
      "A scheduler written in Python (spillway.policies.Scheduler). It is asked once for each "
      "request that joins the queue, so that steps are still performed together.";
  static constexpr signals::Needs needs{.output_lengths = true};
};

std::unique_ptr<SchedulerPolicy> make(const PythonScheduler& config,
                                      const workload::RequestTable& requests);

}  // namespace spillway::instance
