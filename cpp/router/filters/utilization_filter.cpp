#include "router/filters/utilization_filter.h"

#include "router/filters/filter.h"

namespace spillway::router {

namespace {

class UtilizationPolicy final : public Filter {
 public:
  explicit UtilizationPolicy(const UtilizationFilter& config)
      : queue_depth_(config.queue_depth_threshold * (1 + config.headroom)),
        kv_utilization_(config.kv_utilization_threshold * (1 + config.headroom)) {}

  void keep(const signals::RequestView&, const signals::View& view, sim::Draws&,
            std::vector<bool>& kept) const override {
    keep_fitting(kept, [&](std::size_t i) {
      const signals::InstanceSignal seen = view.instance(i);
      return static_cast<double>(seen.waiting) < queue_depth_ &&
             seen.kv_utilization < kv_utilization_ && !view.is_stale(i);
    });
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
