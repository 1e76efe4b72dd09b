#include "instance/scheduler/sjf.h"

#include "instance/scheduler/scheduler.h"

namespace spillway::instance {

namespace {

class SjfPolicy final : public SchedulerPolicy {
 public:
  std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const override {
    return requests.input_tokens(id);
  }
};

}  // namespace

std::unique_ptr<SchedulerPolicy> make(const Sjf&, const workload::RequestTable&) {
  return std::make_unique<SjfPolicy>();
}

}  // namespace spillway::instance
