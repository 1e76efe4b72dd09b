#pragma once

#include <memory>
#include <string_view>
#include <tuple>

#include "instance/scheduler/priority.h"
#include "instance/scheduler/scheduler.h"
#include "sim/field.h"

namespace spillway::instance {

/// The most urgent request first, then the earliest.
struct PriorityFcfs {
  Priority priority = Priority::slo_class;

  static constexpr std::string_view kind = "priority_fcfs", type_name = "PriorityFcfs";
  static constexpr std::string_view doc = "The most urgent request first, then the earliest.";
  static constexpr auto fields() {
    return std::tuple(sim::field("priority", &PriorityFcfs::priority, kPriorityDoc));
  }
};

std::unique_ptr<SchedulerPolicy> make(const PriorityFcfs& config);

}  // namespace spillway::instance
