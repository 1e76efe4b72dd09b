#include "router/filters/load_imbalance.h"

#include <limits>

#include "router/filters/filter.h"

namespace spillway::router {

namespace {

class LoadImbalanceFilter final : public Filter {
 public:
  explicit LoadImbalanceFilter(const LoadImbalance& config) : config_(config) {}

  void keep(const signals::RequestView&, const signals::View& view, sim::Draws&,
            std::vector<bool>& kept) const override {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t most = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      least = std::min(least, load(view, i));
      most = std::max(most, load(view, i));
    }
    if (most - least < config_.threshold) return;
    keep_only(kept, [&](std::size_t i) { return load(view, i) == least; });
  }

 private:
  std::int64_t load(const signals::View& view, std::size_t i) const {
    return config_.load == ImbalanceLoad::running ? view.occupancy(i).running : view.in_flight(i);
  }

  LoadImbalance config_;
};

}  // namespace

std::unique_ptr<Filter> make(const LoadImbalance& config) {
  return std::make_unique<LoadImbalanceFilter>(config);
}

}  // namespace spillway::router
