#include "router/least_loaded.h"

#include "router/pick_tied.h"
#include "router/policy.h"

namespace spillway::router {

namespace {

class LeastLoadedPolicy final : public RoutingPolicy {
 public:
  explicit LeastLoadedPolicy(Ties ties) : ties_(ties) {}

  sim::InstanceId pick(const signals::RequestView&, const signals::View& view, sim::Time,
                       sim::Draws& draws) override {
    std::size_t best = 0;
    std::size_t tied = 1;
    std::int64_t least = view.effective_load(0);
    for (std::size_t i = 1; i < view.size(); ++i) {
      const std::int64_t load = view.effective_load(i);
      if (load < least) {
        best = i;
        least = load;
        tied = 1;
      } else if (load == least) {
        ++tied;
      }
    }
    return view.id(pick_tied(ties_, best, tied, draws,
                             [&](std::size_t i) { return view.effective_load(i) == least; }));
  }

 private:
  Ties ties_;
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const LeastLoaded& config) {
  return std::make_unique<LeastLoadedPolicy>(config.ties);
}

}  // namespace spillway::router
