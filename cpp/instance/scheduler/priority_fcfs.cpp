#include "instance/scheduler/priority_fcfs.h"

#include <cstddef>
#include <set>
#include <string>

#include "instance/scheduler/scheduler.h"
#include "instance/scheduler/urgency.h"
#include "sim/names.h"
#include "sim/value.h"

namespace spillway::instance {

namespace {

constexpr double kLeastAgeWeight = 1e-6;

class PriorityFcfsPolicy final : public SchedulerPolicy {
 public:
  PriorityFcfsPolicy(const PriorityFcfs& config, const workload::RequestTable& requests)
      : config_(config) {
    for (const workload::SloClass& slo_class : requests.slo_classes) {
      const std::size_t i = sim::index_of_name(config.class_priorities, slo_class.name);
      const bool is_named = i < config.class_priorities.size();
      worth_.push_back(worth(is_named ? config.class_priorities[i].priority : slo_class.priority));
    }
  }
  std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const override {
    if (config_.priority != Priority::slo_class) {
      return urgency_rank(config_.priority, id, requests);
    }
    const std::int64_t arrival = ages() ? requests.arrival(id).ns : 0;
    return arrival - worth_[requests.slo_class(id)];
  }
  PreemptionRules preemption() const override {
    PreemptionRules rules{.victim = config_.victim,
                          .max_per_step = config_.max_preemptions_per_step};
    if (config_.preemption_margin) rules.margin = worth(*config_.preemption_margin);
    return rules;
  }

 private:
  bool ages() const { return config_.age_weight_per_s > 0; }
  // All requests gain the same priority in a span of time, so the order of two requests never
  // changes. With aging, priority is counted in the nanoseconds in which it is gained.
  std::int64_t worth(std::int64_t priority) const {
    if (!ages()) return priority;
    return sim::from_seconds(static_cast<double>(priority) / config_.age_weight_per_s).ns;
  }

  PriorityFcfs config_;
  std::vector<std::int64_t> worth_;  // by class
};

}  // namespace

void PriorityFcfs::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (age_weight_per_s > 0 && age_weight_per_s < kLeastAgeWeight) {
    out.push_back({sim::join_path(path, "age_weight_per_s"), sim::to_text(age_weight_per_s),
                   "must be 0 (priorities do not grow) or >= 1e-6 (priority/s)"});
  }
  const std::string priorities = sim::join_path(path, "class_priorities");
  std::set<std::string> names;
  for (std::size_t i = 0; i < class_priorities.size(); ++i) {
    if (names.insert(class_priorities[i].name).second) continue;
    out.push_back({sim::join_path(sim::index_path(priorities, i), "name"), class_priorities[i].name,
                   "must differ from the previous ones"});
  }
  if (preemption_margin && victim == Victim::least_computed) {
    // An urgent head preempts a larger request for its memory and, as the smaller of the two, is
    // its victim in turn; neither need ever finish.
    out.push_back({sim::join_path(path, "victim"), "least_computed",
                   "must be last or lowest_priority with a preemption_margin: two requests could "
                   "preempt each other forever"});
  }
  if (priority == Priority::slo_class) return;
  const auto needs_classes = [&](bool is_set, const char* name, const std::string& value) {
    if (!is_set) return;
    out.push_back({sim::join_path(path, name), value, "can be set only if priority is slo_class"});
  };
  needs_classes(!class_priorities.empty(), "class_priorities",
                std::to_string(class_priorities.size()) + " classes");
  needs_classes(age_weight_per_s > 0, "age_weight_per_s", sim::to_text(age_weight_per_s));
  needs_classes(preemption_margin.has_value(), "preemption_margin",
                std::to_string(preemption_margin.value_or(0)));
}

std::unique_ptr<SchedulerPolicy> make(const PriorityFcfs& config,
                                      const workload::RequestTable& requests) {
  return std::make_unique<PriorityFcfsPolicy>(config, requests);
}

}  // namespace spillway::instance
