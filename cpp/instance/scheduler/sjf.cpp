#include "instance/scheduler/sjf.h"

#include "instance/scheduler/scheduler.h"

namespace spillway::instance {

namespace {

class SjfPolicy final : public SchedulerPolicy {
 public:
  explicit SjfPolicy(const Sjf& config) : length_(config.length) {}
  std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const override {
    const std::int64_t prompt = requests.input_tokens(id);
    switch (length_) {
      case JobLength::prompt:
        break;
      case JobLength::output:
        return requests.predicted_output_tokens(id);
      case JobLength::total:
        return prompt + requests.predicted_output_tokens(id);
    }
    return prompt;
  }

 private:
  JobLength length_;
};

}  // namespace

std::unique_ptr<SchedulerPolicy> make(const Sjf& config, const workload::RequestTable&) {
  return std::make_unique<SjfPolicy>(config);
}

}  // namespace spillway::instance
