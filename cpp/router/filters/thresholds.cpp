#include "router/filters/thresholds.h"

#include "router/filters/filter.h"

namespace spillway::router {

namespace {

class ThresholdsFilter final : public Filter {
 public:
  explicit ThresholdsFilter(const Thresholds& config) : config_(config) {}

  void keep(const signals::RequestView&, const signals::View& view, sim::Draws&,
            std::vector<bool>& kept) const override {
    keep_only(kept, [&](std::size_t i) {
      const signals::Occupancy there = view.occupancy(i);
      return is_within(view.in_flight(i), config_.max_in_flight) &&
             is_within(there.running, config_.max_running) &&
             is_within(there.waiting, config_.max_waiting) &&
             (!config_.max_kv_utilization || view.kv_utilization(i) <= *config_.max_kv_utilization);
    });
  }
  bool rejects() const override { return config_.if_none == IfNone::reject; }

 private:
  static bool is_within(std::int64_t value, const std::optional<std::int64_t>& most) {
    return !most || value <= *most;
  }

  Thresholds config_;
};

}  // namespace

std::unique_ptr<Filter> make(const Thresholds& config) {
  return std::make_unique<ThresholdsFilter>(config);
}

}  // namespace spillway::router
