#include "instance/scheduler/reverse_priority.h"

#include "instance/scheduler/scheduler.h"
#include "instance/scheduler/urgency.h"

namespace spillway::instance {

namespace {

class ReversePriorityPolicy final : public SchedulerPolicy {
 public:
  explicit ReversePriorityPolicy(const ReversePriority& config) : config_(config) {}
  std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const override {
    return -urgency_rank(config_.priority, id, requests);
  }

 private:
  ReversePriority config_;
};

}  // namespace

std::unique_ptr<SchedulerPolicy> make(const ReversePriority& config,
                                      const workload::RequestTable&) {
  return std::make_unique<ReversePriorityPolicy>(config);
}

}  // namespace spillway::instance
