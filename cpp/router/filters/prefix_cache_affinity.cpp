#include "router/filters/prefix_cache_affinity.h"

#include "router/filters/filter.h"

namespace spillway::router {

namespace {

class PrefixCacheAffinityFilter final : public Filter {
 public:
  explicit PrefixCacheAffinityFilter(const PrefixCacheAffinity& config) : config_(config) {}

  void keep(const signals::RequestView& request, const signals::View& view, sim::Draws& draws,
            std::vector<bool>& kept) const override {
    if (config_.exploration > 0 && draws.uniform() < config_.exploration) return;
    keep_fitting(kept,
                 [&](std::size_t i) { return view.prefix_match(request, i) >= config_.threshold; });
  }

 private:
  PrefixCacheAffinity config_;
};

}  // namespace

std::unique_ptr<Filter> make(const PrefixCacheAffinity& config) {
  return std::make_unique<PrefixCacheAffinityFilter>(config);
}

}  // namespace spillway::router
