#include "router/filters/prefix_cache_affinity.h"

#include <algorithm>

namespace spillway::router {

namespace {

class PrefixCacheAffinityFilter final : public Filter {
 public:
  explicit PrefixCacheAffinityFilter(const PrefixCacheAffinity& config) : config_(config) {}

  void keep(const signals::RequestView& request, const signals::View& view, sim::Draws& draws,
            std::vector<bool>& kept) const override {
    if (config_.exploration > 0 && draws.uniform() < config_.exploration) return;
    const auto is_sticky = [&](std::size_t i) {
      return view.prefix_match(request, i) >= config_.threshold;
    };
    std::size_t sticky = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) sticky += kept[i] && is_sticky(i) ? 1 : 0;
    if (sticky == 0) return;
    for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = kept[i] && is_sticky(i);
  }

 private:
  PrefixCacheAffinity config_;
};

}  // namespace

std::unique_ptr<Filter> make(const PrefixCacheAffinity& config) {
  return std::make_unique<PrefixCacheAffinityFilter>(config);
}

}  // namespace spillway::router
