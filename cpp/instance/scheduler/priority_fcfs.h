#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "instance/scheduler/priority.h"
#include "instance/scheduler/victim.h"
#include "sim/error.h"
#include "sim/schema/range.h"

namespace spillway::workload {
class RequestTable;
}

namespace spillway::instance {

class SchedulerPolicy;

/// Priority of a class inside the instances.
struct ClassPriority {
  std::string name = "standard";
  std::int64_t priority = 0;

  static constexpr std::string_view type_name = "ClassPriority";
  static constexpr std::string_view doc = "Priority of a class inside the instances.";
  static void fields(auto field) {
    field("name", &ClassPriority::name, "Name of the class.");
    field("priority", &ClassPriority::priority, "Priority of the class; higher is more important.")
        .dimensionless()
        .range(sim::between(-1000, 1000));
  }
};

/// The most urgent request first, then the earliest.
struct PriorityFcfs {
  Priority priority = Priority::slo_class;
  std::vector<ClassPriority> class_priorities;
  double age_weight_per_s = 0;
  Victim victim = Victim::last;
  std::optional<std::int64_t> preemption_margin;
  std::int64_t max_preemptions_per_step = 3;

  static constexpr std::string_view kind = "priority_fcfs", type_name = "PriorityFcfs";
  static constexpr std::string_view doc = "The most urgent request first, then the earliest.";
  static void fields(auto field) {
    using P = PriorityFcfs;
    field("priority", &P::priority, kPriorityDoc);
    field("class_priorities", &P::class_priorities,
          "Priorities of classes that differ from their own priority (slo_class only).");
    field("age_weight_per_s", &P::age_weight_per_s,
          "Priority that a request gains per second since its arrival (slo_class only), which "
          "prevents starvation: a request with a priority lower by d goes first if it arrived d / "
          "age_weight_per_s earlier. 0, or at least 1e-6.")
        .unit("priority/s")
        .range(sim::between(0, 1e6))
        .log_search(0.1, 100);
    field("victim", &P::victim,
          "Victim of a preemption when memory is short. last: the last request that entered the "
          "batch; lowest_priority: the one with the lowest priority, of equals the last to arrive "
          "(vLLM's policies fcfs and priority); least_computed: the one with the fewest tokens in "
          "memory, of equals the last to enter, so that little is computed again (not with a "
          "preemption_margin).");
    field("preemption_margin", &P::preemption_margin,
          "If the head of the queue finds no seat or no memory, the running request with the "
          "lowest priority is preempted if its priority is lower than the head's by at least this "
          "margin (slo_class only); unset: no preemption for the head.")
        .dimensionless()
        .range(sim::between(1, 2000))
        .search(1, 10);
    field("max_preemptions_per_step", &P::max_preemptions_per_step,
          "Maximum number of such preemptions per step.")
        .unit("requests")
        .range(sim::between(1, 1e6));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<SchedulerPolicy> make(const PriorityFcfs& config,
                                      const workload::RequestTable& requests);

}  // namespace spillway::instance
