#pragma once

#include <memory>
#include <string_view>

#include "instance/scheduler/priority.h"

namespace spillway::workload {
class RequestTable;
}

namespace spillway::instance {

class SchedulerPolicy;

/// The least urgent request first; for testing starvation.
struct ReversePriority {
  Priority priority = Priority::slo_class;

  static constexpr std::string_view kind = "reverse_priority", type_name = "ReversePriority";
  static constexpr std::string_view doc = "The least urgent request first; for testing starvation.";
  static void fields(auto field) { field("priority", &ReversePriority::priority, kPriorityDoc); }
};

std::unique_ptr<SchedulerPolicy> make(const ReversePriority& config,
                                      const workload::RequestTable& requests);

}  // namespace spillway::instance
