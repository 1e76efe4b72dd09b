#include "instance/scheduler/fcfs.h"

#include "instance/scheduler/scheduler.h"

namespace spillway::instance {

namespace {

class FcfsPolicy final : public SchedulerPolicy {
 public:
  bool sorts() const override { return false; }
  std::int64_t rank(sim::RequestId, const workload::RequestTable&) const override { return 0; }
};

}  // namespace

std::unique_ptr<SchedulerPolicy> make(const Fcfs&, const workload::RequestTable&) {
  return std::make_unique<FcfsPolicy>();
}

}  // namespace spillway::instance
