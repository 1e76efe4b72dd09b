#include "router/filters/prefix_cache_affinity.h"

#include <limits>

#include "router/filters/filter.h"

namespace spillway::router {

namespace {

class PrefixCacheAffinityFilter final : public Filter {
 public:
  explicit PrefixCacheAffinityFilter(const PrefixCacheAffinity& config) : config_(config) {}

  void keep(const signals::RequestView& request, const signals::View& view, sim::Draws& draws,
            std::vector<bool>& kept) const override {
    if (config_.exploration > 0 && draws.uniform() < config_.exploration) return;
    std::vector<bool> fitting = kept;
    keep_fitting(fitting,
                 [&](std::size_t i) { return view.prefix_match(request, i) >= config_.threshold; });
    if (!waits_too_long(request, view, kept, fitting)) kept.swap(fitting);
  }

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::max();

  bool waits_too_long(const signals::RequestView& request, const signals::View& view,
                      const std::vector<bool>& kept, const std::vector<bool>& fitting) const {
    if (!config_.max_ttft_penalty_s || kept == fitting) return false;
    double there = kUnknown;
    double elsewhere = kUnknown;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      double& least = fitting[i] ? there : elsewhere;
      least = std::min(least, ttft_ms(request, view, i));
    }
    return there - elsewhere > *config_.max_ttft_penalty_s * 1000;
  }
  double ttft_ms(const signals::RequestView& request, const signals::View& view,
                 std::size_t i) const {
    if (config_.ttft_source == TtftSource::predictor) {
      const auto predicted = view.prediction(request, i);
      return predicted ? predicted->ttft_ms : kUnknown;
    }
    const auto tokens = static_cast<double>(view.in_flight_tokens(i));
    return tokens / config_.peak_prefill_tokens_per_s * 1000;
  }

  PrefixCacheAffinity config_;
};

}  // namespace

std::unique_ptr<Filter> make(const PrefixCacheAffinity& config) {
  return std::make_unique<PrefixCacheAffinityFilter>(config);
}

}  // namespace spillway::router
