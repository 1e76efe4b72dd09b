#include "gateway/usage_limit/priority_holdback.h"

#include "gateway/usage_limit/usage_limit.h"
#include "sim/value.h"

namespace spillway::gateway {

namespace {

class PriorityHoldbackPolicy final : public UsageLimitPolicy {
 public:
  PriorityHoldbackPolicy(const PriorityHoldback& config, std::span<const std::int64_t> priorities)
      : config_(config), priorities_(priorities.begin(), priorities.end()) {}

  void set_ceilings(double, std::span<double> ceilings) override {
    for (std::size_t i = 0; i < ceilings.size(); ++i) {
      ceilings[i] = config_.max_ceiling - depth(i) * (config_.max_ceiling - config_.min_ceiling);
    }
  }

 private:
  // From 0 for the highest band to 1 for the lowest.
  double depth(std::size_t i) const {
    if (priorities_.size() == 1) return 0;
    if (config_.domain == HoldbackDomain::rank) {
      return static_cast<double>(i) / static_cast<double>(priorities_.size() - 1);
    }
    return static_cast<double>(priorities_.front() - priorities_[i]) /
           static_cast<double>(priorities_.front() - priorities_.back());
  }

  PriorityHoldback config_;
  std::vector<std::int64_t> priorities_;
};

}  // namespace

void PriorityHoldback::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (min_ceiling <= max_ceiling) return;
  out.push_back({sim::join_path(path, "min_ceiling"), sim::to_text(min_ceiling),
                 "must be <= max_ceiling (" + sim::to_text(max_ceiling) + ")"});
}

std::unique_ptr<UsageLimitPolicy> make(const PriorityHoldback& config,
                                       std::span<const std::int64_t> priorities) {
  return std::make_unique<PriorityHoldbackPolicy>(config, priorities);
}

}  // namespace spillway::gateway
