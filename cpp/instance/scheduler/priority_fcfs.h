#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "instance/scheduler/priority.h"
#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::workload {
class RequestTable;
}

namespace spillway::instance {

class SchedulerPolicy;

/// Who is preempted where memory is short.
enum class Victim : std::uint8_t { last, lowest_priority };

/// What a class counts inside the instances.
struct ClassPriority {
  std::string name = "standard";
  std::int64_t priority = 0;

  static constexpr std::string_view type_name = "ClassPriority";
  static constexpr std::string_view doc = "What a class counts inside the instances.";
  static void fields(auto field) {
    field("name", &ClassPriority::name, "The class.");
    field("priority", &ClassPriority::priority, "Its priority there; higher is more important.")
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
          "What classes count here, where that is not their own priority (slo_class only).");
    field("age_weight_per_s", &P::age_weight_per_s,
          "Priority that a request gains per second since its arrival (slo_class only), so that "
          "none starves: a request that counts d less than another goes first if it came d / "
          "age_weight_per_s earlier. 0, or at least 1e-6.")
        .unit("priority/s")
        .range(sim::between(0, 1e6))
        .log_search(0.1, 100);
    field("victim", &P::victim,
          "Who is preempted where memory is short: the last that entered the batch, or the one "
          "with the lowest priority, of equals the one that arrived last (vLLM's policies fcfs "
          "and priority).");
    field("preemption_margin", &P::preemption_margin,
          "If the head of the queue finds no seat or no memory, the running request with the "
          "lowest priority is preempted for it if that is lower by at least so much (slo_class "
          "only); absent: nobody is.")
        .dimensionless()
        .range(sim::between(1, 2000))
        .search(1, 10);
    field("max_preemptions_per_step", &P::max_preemptions_per_step, "Most of these in one step.")
        .unit("requests")
        .range(sim::between(1, 1e6));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<SchedulerPolicy> make(const PriorityFcfs& config,
                                      const workload::RequestTable& requests);

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::Victim> {
  static constexpr std::array<std::string_view, 2> names{"last", "lowest_priority"};
};
