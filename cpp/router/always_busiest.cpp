#include "router/always_busiest.h"

#include "router/policy.h"

namespace spillway::router {

namespace {

class AlwaysBusiestPolicy final : public RoutingPolicy {
 public:
  sim::InstanceId pick(const signals::RequestView&, const signals::View& view, sim::Time,
                       sim::Draws&) override {
    std::size_t busiest = 0;
    std::int64_t most = view.effective_load(0);
    for (std::size_t i = 1; i < view.size(); ++i) {
      const std::int64_t load = view.effective_load(i);
      if (load > most) {
        busiest = i;
        most = load;
      }
    }
    return view.id(busiest);
  }
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const AlwaysBusiest&) {
  return std::make_unique<AlwaysBusiestPolicy>();
}

}  // namespace spillway::router
