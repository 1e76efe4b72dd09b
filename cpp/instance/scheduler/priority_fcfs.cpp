#include "instance/scheduler/priority_fcfs.h"

namespace spillway::instance {

namespace {

class PriorityFcfsPolicy final : public SchedulerPolicy {
 public:
  explicit PriorityFcfsPolicy(const PriorityFcfs& config) : config_(config) {}
  std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const override {
    return urgency_rank(config_.priority, id, requests);
  }

 private:
  PriorityFcfs config_;
};

}  // namespace

std::unique_ptr<SchedulerPolicy> make(const PriorityFcfs& config) {
  return std::make_unique<PriorityFcfsPolicy>(config);
}

}  // namespace spillway::instance
