#include "instance/scheduler/longest_prefix.h"

#include <optional>

#include "instance/scheduler/scheduler.h"

namespace spillway::instance {

namespace {

class LongestPrefixPolicy final : public SchedulerPolicy {
 public:
  explicit LongestPrefixPolicy(const LongestPrefix& config) : config_(config) {}
  bool sorts() const override { return false; }
  std::int64_t rank(sim::RequestId, const workload::RequestTable&) const override { return 0; }
  std::optional<PrefixOrder> prefix_order() const override {
    return PrefixOrder{config_.aging_tokens_per_step, config_.max_sorted_requests};
  }

 private:
  LongestPrefix config_;
};

}  // namespace

std::unique_ptr<SchedulerPolicy> make(const LongestPrefix& config, const workload::RequestTable&) {
  return std::make_unique<LongestPrefixPolicy>(config);
}

}  // namespace spillway::instance
