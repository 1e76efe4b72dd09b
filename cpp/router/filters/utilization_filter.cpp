#include "router/filters/utilization_filter.h"

#include <algorithm>

namespace spillway::router {

namespace {

class UtilizationPolicy final : public Filter {
 public:
  explicit UtilizationPolicy(const UtilizationFilter& config)
      : queue_depth_(config.queue_depth_threshold * (1 + config.headroom)),
        kv_utilization_(config.kv_utilization_threshold * (1 + config.headroom)) {}

  void keep(const signals::RequestView&, const signals::View& view, sim::Draws&,
            std::vector<bool>& kept) const override {
    const std::vector<bool> before = kept;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const signals::InstanceSignal seen = view.instance(i);
      kept[i] = kept[i] && static_cast<double>(seen.waiting) < queue_depth_ &&
                seen.kv_utilization < kv_utilization_ && !view.is_stale(i);
    }
    if (std::find(kept.begin(), kept.end(), true) == kept.end()) kept = before;
  }

 private:
  double queue_depth_;
  double kv_utilization_;
};

}  // namespace

std::unique_ptr<Filter> make(const UtilizationFilter& config) {
  return std::make_unique<UtilizationPolicy>(config);
}

}  // namespace spillway::router
