#include "router/cache_aware.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "router/policy.h"

namespace spillway::router {

namespace {

class CacheAwarePolicy final : public RoutingPolicy {
 public:
  explicit CacheAwarePolicy(const CacheAware& config) : config_(config) {}

  sim::InstanceId pick(const signals::RequestView& request, const signals::View& view, sim::Time,
                       sim::Draws&) override {
    const auto load = [&](std::size_t i) { return std::int64_t{view.in_flight(i)}; };
    const std::size_t idlest = smallest(view, load);
    if (are_unequal(view, load(idlest))) return view.id(idlest);
    const std::size_t match =
        smallest(view, [&](std::size_t i) { return -view.sent_tokens(request, i); });
    const auto matched = static_cast<double>(view.sent_tokens(request, match));
    if (matched > config_.cache_threshold * request.input_tokens()) return view.id(match);
    return view.id(smallest(view, [&](std::size_t i) { return view.remembered_blocks(i); }));
  }

 private:
  static std::size_t smallest(const signals::View& view, const auto& value_of) {
    std::size_t best = 0;
    std::int64_t least = value_of(0);
    for (std::size_t i = 1; i < view.size(); ++i) {
      const std::int64_t value = value_of(i);
      if (value >= least) continue;
      least = value;
      best = i;
    }
    return best;
  }
  bool are_unequal(const signals::View& view, std::int64_t least) const {
    std::int64_t most = least;
    for (std::size_t i = 0; i < view.size(); ++i) {
      most = std::max(most, std::int64_t{view.in_flight(i)});
    }
    return most - least > config_.balance_abs_threshold &&
           static_cast<double>(most) > config_.balance_rel_threshold * static_cast<double>(least);
  }

  CacheAware config_;
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const CacheAware& config) {
  return std::make_unique<CacheAwarePolicy>(config);
}

}  // namespace spillway::router
